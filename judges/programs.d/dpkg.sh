# dpkg upgrades a package of two files. Images of Debian for containers set force-unsafe-io in
# /etc/dpkg/dpkg.cfg.d, so both rows say which they mean.
# packages: dpkg
# limits: --max-states=300
# row: dpkg | defaults | durable | no
# row: dpkg-unsafe-io | --force-unsafe-io | intact | yes: dpkg(1), --force-unsafe-io
install() {
    case $2 in *-unsafe-io) set -- "$1" --force-unsafe-io ;;
    *) set -- "$1" --no-force-unsafe-io ;;
    esac
    dpkg --root="$PWD" --log="$PWD/log" --force-not-root --force-script-chrootless --force-bad-path \
        $2 --install "$1"
}
package() {
    mkdir -p made/DEBIAN made/usr/share/small
    printf '%s\n' 'Package: small' "Version: $1" 'Architecture: all' 'Maintainer: n <n@example.org>' \
        'Description: two files' >made/DEBIAN/control
    seq "${1}000" >made/usr/share/small/one
    seq "${1}500" >made/usr/share/small/two
    dpkg-deb --root-owner-group --build made "small-$1.deb" >/dev/null && rm -r made
}
# Whether both files are those of a version.
has() {
    seq "${1}000" | cmp -s - usr/share/small/one && seq "${1}500" | cmp -s - usr/share/small/two
}
case $1 in
version) dpkg --version | sed -n '1s/.*version \([0-9.]*\) .*/\1/p' ;;
setup)
    package 1 && package 2 && mkdir -p var/lib/dpkg/info var/lib/dpkg/updates || exit
    : >var/lib/dpkg/status && install small-1.deb "$2" ;;
run)    install small-2.deb "$2" && echo "committed 2" ;;
check)
    state=$(dpkg-query --root="$PWD" -W -f '${Status} ${Version}' small) || exit
    echo "$state"
    case $state in
    "install ok installed 1") has 1 && [ -z "$STRANDLINE_ACKNOWLEDGED" ] || exit 1 ;;
    "install ok installed 2") has 2 || exit 1 ;;
    *)  # In between, and dpkg knows it: then installing it again mends it.
        [ -z "$STRANDLINE_ACKNOWLEDGED" ] || exit 1 ;;
    esac
    install small-2.deb "$2" && has 2 ;;
esac
