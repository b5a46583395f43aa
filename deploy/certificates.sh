#!/bin/sh
# Certificates for Aliquot's servers and their callers, where there is no cert-manager:
#   certificates.sh FOLDER
# makes in FOLDER an authority (ca.crt, ca.key), a pair for the servers (tls.crt, tls.key) and one for kube-scheduler
# (client.crt, client.key). What is there already stays. Keep ca.key to yourself: whoever has it can call as anybody.
set -eu

usage() {
    echo "usage: certificates.sh FOLDER"
    echo "Creates in FOLDER an authority, a pair for Aliquot's servers and one for kube-scheduler. Keeps existing files."
    echo "DAYS sets how many days the pairs are valid (default 365)."
}

case ${1:-} in
-h | --help) usage && exit 0 ;;
"" | -*) usage >&2 && exit 2 ;;
esac
folder=$1
days=${DAYS:-365}
mkdir -p "$folder"
cd "$folder"
umask 077

pair() { # NAME SUBJECT EXTENSIONS
    [ -e "$1.crt" ] && return
    openssl req -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -subj "$2" -keyout "$1.key" -out "$1.csr" 2>/dev/null
    printf '%b' "$3" > "$1.ext"
    openssl x509 -req -in "$1.csr" -CA ca.crt -CAkey ca.key -CAcreateserial -days "$days" -out "$1.crt" \
        -extfile "$1.ext" 2>/dev/null
    rm "$1.csr" "$1.ext"
}

[ -e ca.crt ] || openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 3650 \
    -subj "/CN=aliquot authority" -keyout ca.key -out ca.crt 2>/dev/null
# every server has this name, whatever its address; a caller that shows it is another replica
pair tls "/CN=aliquot-server" \
    'subjectAltName=DNS:aliquot-server.aliquot-system.svc,IP:127.0.0.1\nextendedKeyUsage=serverAuth,clientAuth\n'
# the subject says which kind of caller it is
pair client "/CN=system:kube-scheduler" 'extendedKeyUsage=clientAuth\n'
