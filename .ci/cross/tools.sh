# Tools for the steps that compile for other machines; read in by them, after `set -euo pipefail`.
# What is downloaded is kept outside of the checkout, in $SLOTSTREAM_TOOLS or the user's cache.
tools=${SLOTSTREAM_TOOLS:-${XDG_CACHE_HOME:-$HOME/.cache}/slotstream-tools}
# Flags by which cargo builds the standard library itself; empty where rustup has it.
build_std=()

# A C compiler and linker for every target: zig, a package of PyPI. Sets $zig.
need_zig() {
    zig=$tools/zig/bin/python
    if ! "$zig" -m ziglang version >/dev/null 2>&1; then
        rm -rf "$tools/zig"
        mkdir -p "$tools"
        python3 -m venv "$tools/zig"
        "$zig" -m pip install --quiet --disable-pip-version-check 'ziglang>=0.15'
    fi
    export ZIG_GLOBAL_CACHE_DIR=$tools/zig-cache ZIG_LOCAL_CACHE_DIR=$tools/zig-cache
}

# compiler FILE TARGET FLAGS...: writes a program that calls zig's C compiler with these flags. What
# the `cc` crate says of the target is left out: zig has names of its own for targets.
compiler() {
    local file=$1 target=$2 flags
    shift 2
    printf -v flags ' %q' "$@"
    mkdir -p "$(dirname "$file")"
    cat >"$file" <<SCRIPT
#!/bin/sh
for argument do
    shift
    case \$argument in --target=*) ;; *) set -- "\$@" "\$argument" ;; esac
done
exec $(printf %q "$zig") -m ziglang cc -target $target${flags:-} "\$@"
SCRIPT
    chmod +x "$file"
}

# The standard library for a target: there already, from rustup, or built from a source.
need_std() {
    local target=$1 folder
    folder=$(rustc --print target-libdir --target "$target")
    if compgen -G "$folder/libstd-*.rlib" >/dev/null; then return; fi
    if command -v rustup >/dev/null && rustup target add "$target"; then return; fi
    echo "no standard library for $target by rustup: one is built from Debian's compiler and source"
    need_debian_compiler
}

# A compiler and the source of its own standard library, which Debian keeps in step (for browsers).
# About 140 MB of packages, unpacked and not installed. Sets $RUSTC, $build_std.
need_debian_compiler() {
    local folder=$tools/rust std llvm package
    if [[ ! -x $folder/rustc ]]; then
        rm -rf "$folder"
        mkdir -p "$folder/packages"
        std=$(apt-cache depends libstd-rust-web-dev |
            sed -n 's/.*Depends: \(libstd-rust-web-[0-9.]*\).*/\1/p' | head -n 1)
        llvm=$(apt-cache depends rustc-web "$std" |
            sed -n 's/.*Depends: \(libllvm[0-9]*\).*/\1/p' | head -n 1)
        (
            cd "$folder/packages"
            apt-get download --quiet rustc-web "$std" libstd-rust-web-dev rust-web-src "$llvm"
        )
        for package in "$folder"/packages/*.deb; do dpkg -x "$package" "$folder"; done
        rm -r "$folder/packages"
        printf '#!/bin/sh\nexport LD_LIBRARY_PATH=%q\nexec %q "$@"\n' \
            "$folder/usr/lib/x86_64-linux-gnu" "$folder/usr/bin/rustc" >"$folder/rustc"
        chmod +x "$folder/rustc"
    fi
    export RUSTC=$folder/rustc RUSTC_BOOTSTRAP=1 CARGO_TARGET_DIR=$PWD/target/from-source
    __CARGO_TESTS_ONLY_SRC_ROOT=$(echo "$folder"/usr/src/rustc-*/library)
    export __CARGO_TESTS_ONLY_SRC_ROOT
    build_std=(-Zbuild-std=std,panic_abort)
}
