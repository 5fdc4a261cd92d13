# mistake: multi-file commit
# Two files have to agree. Each is replaced as it should be, and still a cut comes between them.
save() { echo "$2" >"$1.new" && sync "$1.new" && mv "$1.new" "$1" && sync "${1%/*}"; }
case $1 in
setup)  mkdir v1 && echo 1 >v1/a && echo 1 >v1/b && ln -s v1 current ;;
broken) save current/a 2 && save current/b 2 ;;
mended) mkdir v2 && save v2/a 2 && save v2/b 2 && sync . &&
        ln -s v2 next && mv -T next current && sync . ;;
check)  cmp -s current/a current/b ;;
esac
