# git commits a file twice.
# packages: git
# limits: --max-states=300
# row: git | as installed | durable | yes: git-config(1), core.fsync: no loose objects, no references
# row: git-intact | as installed | intact | yes: git-config(1), core.fsync: no loose objects, no references
# row: git-fsync | core.fsync=all | durable | no
# row: git-fsync-intact | core.fsync=all | intact | no
export HOME="$PWD" GIT_CONFIG_NOSYSTEM=1
case $1 in
version) git --version | sed 's/.* //' ;;
setup)
    git init -q . && git config user.name n && git config user.email n@example.org || exit
    case $2 in *-fsync*) git config core.fsync all ;; esac
    echo 1 >a && git add a && git commit -qm 1 && git config gc.auto 0 ;;
run)
    for n in 2 3; do
        echo $n >>a && git commit -qam $n && echo "committed $n" || exit
    done ;;
check)
    # A lock that a crash left is removed by hand: git says so.
    find .git -name '*.lock' -delete
    git fsck --strict && there=$(git log --format=%s -1) && git status >/dev/null || exit
    case $2 in *-intact) exit ;; esac
    [ "$there" -ge "${STRANDLINE_ACKNOWLEDGED:-1}" ] ;;
esac
