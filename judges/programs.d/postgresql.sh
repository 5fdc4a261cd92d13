# PostgreSQL inserts rows, a transaction each, without a server: `postgres --single`. It refuses
# to run as root, so this row wants a user.
# packages: postgresql
# limits: --max-states=200 --check-timeout=60
# row: postgresql | defaults | durable | no
# row: postgresql-async | synchronous_commit=off | durable | yes: "Asynchronous Commit"
# row: postgresql-async-intact | synchronous_commit=off | intact | no: "Asynchronous Commit" keeps integrity
# row: postgresql-nofsync | fsync=off | intact | yes: "Write Ahead Log", fsync
PATH=$(echo /usr/lib/postgresql/*/bin):$PATH
case $2 in
*-async*) options='-c synchronous_commit=off' ;;
*-nofsync) options='-c fsync=off' ;;
esac
# A single statement is a line. What it prints is `1: NAME = "VALUE"`.
sql() { postgres --single -D db $options postgres | sed -nu 's/.*= "\(.*\)".*/\1/p'; }
case $1 in
version)
    [ "$(id -u)" != 0 ] || { echo "root may not run it" >&2; exit 1; }
    postgres --version | sed 's/.*) \([^ ]*\).*/\1/' ;;
setup)
    initdb --auth=trust --no-sync -D db >/dev/null
    echo 'create table t(x int primary key, y text)' | sql ;;
run)
    for n in $(seq 6); do
        echo "insert into t values($n, repeat('x', 3000))"
        echo "select 'committed $n'"
        [ "$n" != 3 ] || echo checkpoint
    done | sql ;;
check)
    # The server refuses to start over a lock file that is empty or makes no sense, with the hint
    # to remove it. Nobody but the machine that has lost its power can have held it.
    rm -f db/postmaster.pid
    # What is there are the first transactions, whole; an error prints nothing.
    whole="select count(*) from t where length(y) = 3000 and x <= (select count(*) from t)"
    { read -r there && read -r whole; } <<EOF || exit 1
$(printf '%s\n' "select count(*) from t" "$whole" | sql)
EOF
    [ "$whole" = "$there" ] || exit 1
    case $2 in *-intact|*-nofsync) exit ;; esac
    [ "$there" -ge "${STRANDLINE_ACKNOWLEDGED:-0}" ] ;;
esac
