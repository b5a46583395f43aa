// Command extender is a peer of the extender benchmark: it decodes what kube-scheduler sends into the full types of
// Kubernetes, as every extender written in Go does before it can decide anything, and decides nothing.
package main

import (
	"encoding/json"
	"log"
	"net/http"
	"os"

	extender "k8s.io/kube-scheduler/extender/v1"
)

func main() {
	http.HandleFunc("POST /filter", decoded(`{"Nodes":null,"NodeNames":[],"FailedNodes":{},"Error":""}`))
	http.HandleFunc("POST /prioritize", decoded(`[]`))
	http.HandleFunc("GET /ready", func(http.ResponseWriter, *http.Request) {})
	log.Fatal(http.ListenAndServe("127.0.0.1:"+os.Args[1], nil))
}

func decoded(answer string) http.HandlerFunc {
	fixed := []byte(answer)
	return func(w http.ResponseWriter, r *http.Request) {
		var args extender.ExtenderArgs
		if err := json.NewDecoder(r.Body).Decode(&args); err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		if args.Pod == nil || (args.Nodes == nil && args.NodeNames == nil) {
			http.Error(w, "no pod or no nodes", http.StatusBadRequest)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		w.Write(fixed)
	}
}
