# LevelDB, through its Python binding, puts keys; a small write buffer makes it compact.
# packages: python3-plyvel
# limits: --max-states=1000
# row: leveldb-sync | sync=true | durable | no
# row: leveldb-sync-intact | sync=true | intact | no
# row: leveldb | sync=false, the default | durable | yes: doc/index.md, "Synchronous Writes"
# row: leveldb-intact | sync=false, the default | intact | no
py() { /usr/bin/python3 -B -c "$@"; }
case $1 in
version) py 'import plyvel; print(plyvel.__leveldb_version__)' ;;
setup)  py 'import plyvel; plyvel.DB("db", create_if_missing=True).close()' ;;
run)    py '
import plyvel, random, sys
db = plyvel.DB("db", write_buffer_size=65536)
for n in range(1, 13):
    db.put(b"%02d" % n, random.Random(n).randbytes(20000), sync="sync" in sys.argv[1])
    print("committed", n, flush=True)
' "$2" ;;
check)  py '
import os, plyvel, random, sys
there = list(plyvel.DB("db", paranoid_checks=False).iterator(verify_checksums=True))
assert [int(key) for key, _ in there] == list(range(1, len(there) + 1))
assert all(value == random.Random(int(key)).randbytes(20000) for key, value in there)
if not sys.argv[1].endswith("-intact"):
    assert len(there) >= int(os.environ.get("STRANDLINE_ACKNOWLEDGED", 0))
' "$2" ;;
esac
