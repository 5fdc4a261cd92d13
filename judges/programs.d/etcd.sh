# etcd, a member alone, puts keys. A server per state takes a second, so few states are judged.
# packages: etcd-server etcd-client
# limits: --max-states=40 --check-timeout=60
# row: etcd | defaults | durable | no
export ETCDCTL_API=3
# Starts a server on the files here. Its sockets are relative to where it runs.
start() {
    data=$PWD/db
    sockets=$(mktemp -d) && cd "$sockets" || exit
    trap 'kill $server 2>/dev/null; wait; rm -r "$sockets"' EXIT
    etcd --data-dir "$data" --listen-client-urls unix://c:1 --advertise-client-urls unix://c:1 \
        --listen-peer-urls unix://p:1 --initial-advertise-peer-urls unix://p:1 \
        --initial-cluster default=unix://p:1 --heartbeat-interval 10 --election-timeout 100 \
        --snapshot-count 10 >log 2>&1 &
    server=$!
    until cli get x >/dev/null 2>&1; do
        kill -0 $server 2>/dev/null || { tail -n 2 log; exit 1; }
        sleep 0.05
    done
}
cli() { etcdctl --endpoints unix://c:1 "$@"; }
case $1 in
version) etcd --version | sed -n 's/^etcd Version: //p' ;;
setup)
    start
    cli put n 0 >/dev/null ;;
run)
    start
    for n in $(seq 20); do
        cli put n "$n" >/dev/null || exit
        echo "committed $n"
    done ;;
check)
    start
    there=$(cli get n --print-value-only)
    [ "$there" -ge "${STRANDLINE_ACKNOWLEDGED:-0}" ] ;;
esac
