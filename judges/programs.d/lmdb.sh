# LMDB, through its Python binding, puts keys, a transaction each.
# packages: python3-lmdb
# limits: --max-states=1000
# row: lmdb | defaults | durable | -
# row: lmdb-nometasync | MDB_NOMETASYNC | durable | yes: lmdb.h, MDB_NOMETASYNC
# row: lmdb-nometasync-intact | MDB_NOMETASYNC | intact | no: lmdb.h, MDB_NOMETASYNC keeps integrity
# row: lmdb-nosync | MDB_NOSYNC | intact | yes: lmdb.h, MDB_NOSYNC
# row: lmdb-writemap | MDB_WRITEMAP | durable | no
py() { /usr/bin/python3 -B -c "$@"; }
case $1 in
version) py 'import lmdb; print("%d.%d.%d" % lmdb.version())' ;;
setup)  py 'import lmdb; lmdb.open("db").close()' ;;
run)    py '
import lmdb, sys
row = sys.argv[1]
options = {"metasync": "nometasync" not in row, "sync": "nosync" not in row,
           "writemap": "writemap" in row}
env = lmdb.open("db", **options)
for n in range(1, 11):
    with env.begin(write=True) as transaction:
        transaction.put(b"%d" % n, b"x" * 2000)
    print("committed", n, flush=True)
' "$2" ;;
check)  py '
import lmdb, os, sys
with lmdb.open("db").begin() as transaction:
    there = [(int(key), value) for key, value in transaction.cursor()]
assert sorted(key for key, _ in there) == list(range(1, len(there) + 1))
assert all(value == b"x" * 2000 for _, value in there)
if sys.argv[1] in ("lmdb", "lmdb-nometasync", "lmdb-writemap"):
    assert len(there) >= int(os.environ.get("STRANDLINE_ACKNOWLEDGED", 0))
' "$2" ;;
esac
