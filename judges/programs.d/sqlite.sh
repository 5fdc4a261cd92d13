# SQLite inserts rows, a transaction each.
# packages: sqlite3
# limits: --max-states=1000
# row: sqlite-delete-full | rollback journal, synchronous=FULL | durable | yes: "PRAGMA synchronous", EXTRA
# row: sqlite-delete-full-intact | rollback journal, synchronous=FULL | intact | no
# row: sqlite-delete-extra | rollback journal, synchronous=EXTRA | durable | no
# row: sqlite-delete-normal | rollback journal, synchronous=NORMAL | intact | yes: "PRAGMA synchronous", NORMAL
# row: sqlite-truncate-full | journal_mode=TRUNCATE, synchronous=FULL | durable | no
# row: sqlite-persist-full | journal_mode=PERSIST, synchronous=FULL | durable | no
# row: sqlite-wal-full | WAL, synchronous=FULL | durable | no
# row: sqlite-wal-normal | WAL, synchronous=NORMAL | durable | yes: "PRAGMA synchronous", NORMAL
# row: sqlite-wal-normal-intact | WAL, synchronous=NORMAL | intact | no
# row: sqlite-wal-off | WAL, synchronous=OFF | intact | yes: "PRAGMA synchronous", OFF
journal=${2#sqlite-}
synchronous=${journal#*-}
journal=${journal%%-*}
synchronous=${synchronous%%-*}
case $1 in
version) sqlite3 --version | cut -d ' ' -f 1 ;;
setup)  sqlite3 db "pragma journal_mode=$journal; create table t(x primary key, y)" ;;
run)
    {
        echo "pragma journal_mode=$journal; pragma synchronous=$synchronous;"
        for n in $(seq 10); do
            echo "insert into t values($n, hex(zeroblob(2000))); select 'committed $n';"
        done
    } | sqlite3 db ;;
check)
    [ "$(sqlite3 db 'pragma integrity_check')" = ok ] || exit 1
    # What is there are the first transactions, whole.
    there=$(sqlite3 db 'select count(*) from t where length(y) = 4000')
    [ "$there" = "$(sqlite3 db 'select max(x, 0) from (select max(x) x from t)')" ] ||
        [ "$there" = 0 ] || exit 1
    case $2 in
    *-intact|*-normal|*-off) [ "$2" = sqlite-wal-normal ] || exit 0 ;;
    esac
    [ "$there" -ge "${STRANDLINE_ACKNOWLEDGED:-0}" ] ;;
esac
