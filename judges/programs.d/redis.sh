# Redis with an append-only file counts up, and rewrites the file on the way.
# packages: redis-server
# limits: --max-states=150 --check-timeout=20
# row: redis-always | appendfsync always | durable | in part: redis.conf, aof-load-truncated
# row: redis-always-intact | appendfsync always | intact | in part: redis.conf, aof-load-truncated
# row: redis-everysec | appendfsync everysec, the default | durable | yes: redis.conf, appendfsync
# row: redis-everysec-intact | appendfsync everysec, the default | intact | in part: redis.conf, aof-load-truncated
sync=${2#redis-}
sync=${sync%-intact}
# Starts a server on the files here, and sets `server` and `cli`.
start() {
    sockets=$(mktemp -d) || exit
    trap 'kill $server 2>/dev/null; wait; rm -r "$sockets"' EXIT
    redis-server --port 0 --unixsocket "$sockets/s" --dir "$PWD" --save '' --appendonly yes \
        --appendfsync "$sync" --auto-aof-rewrite-percentage 0 >"$sockets/log" 2>&1 &
    server=$!
    until cli ping 2>/dev/null | grep -q PONG; do
        kill -0 $server 2>/dev/null || { tail -n 2 "$sockets/log"; exit 1; }
        sleep 0.01
    done
}
cli() { redis-cli -s "$sockets/s" "$@"; }
# Rewrites the append-only file, to its end.
rewrite() {
    cli bgrewriteaof
    until cli info persistence | grep -q "aof_rewrite_in_progress:0" &&
        cli info persistence | grep -q "aof_rewrite_scheduled:0"; do sleep 0.01; done
} >/dev/null
case $1 in
version) redis-server --version | sed 's/.* v=\([^ ]*\) .*/\1/' ;;
setup)
    start
    cli set n 0 >/dev/null ;;
run)
    start
    for n in $(seq 8); do
        [ "$(cli incr n)" = "$n" ] || exit
        echo "committed $n"
        [ $n != 4 ] || rewrite
    done ;;
check)
    start
    there=$(cli get n)
    case $2 in *-intact) [ "$there" -ge 0 ]; exit ;; esac
    [ "$there" -ge "${STRANDLINE_ACKNOWLEDGED:-0}" ] ;;
esac
