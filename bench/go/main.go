// Command extender is the benchmarks' peer. It decodes what kube-scheduler sends into the full types of Kubernetes, as
// every extender written in Go does before it can decide anything, and decides nothing: /filter and /prioritize have a
// fixed answer, /all/filter and /all/prioritize let every node pass.
package main

import (
	"encoding/json"
	"log"
	"net/http"
	"os"

	extender "k8s.io/kube-scheduler/extender/v1"
)

func main() {
	http.HandleFunc("GET /ready", func(http.ResponseWriter, *http.Request) {})
	http.HandleFunc("POST /filter", answering(func(*extender.ExtenderArgs) any {
		return extender.ExtenderFilterResult{}
	}))
	http.HandleFunc("POST /prioritize", answering(func(*extender.ExtenderArgs) any {
		return extender.HostPriorityList{}
	}))
	http.HandleFunc("POST /all/filter", answering(func(args *extender.ExtenderArgs) any {
		return extender.ExtenderFilterResult{Nodes: args.Nodes, NodeNames: args.NodeNames}
	}))
	http.HandleFunc("POST /all/prioritize", answering(func(args *extender.ExtenderArgs) any {
		scores := make(extender.HostPriorityList, len(*args.NodeNames))
		for place, name := range *args.NodeNames {
			scores[place].Host = name
		}
		return scores
	}))
	log.Fatal(http.ListenAndServe("127.0.0.1:"+os.Args[1], nil))
}

func answering(answer func(*extender.ExtenderArgs) any) http.HandlerFunc {
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
		json.NewEncoder(w).Encode(answer(&args))
	}
}
