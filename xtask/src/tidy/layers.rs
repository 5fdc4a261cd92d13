//! The layer rule: each floor knows only the floors below it.

use super::Finding;

/// The crates, and the floor of each. Crates of one floor do not know one another.
const FLOORS: [(&str, u8); 15] = [
    ("cores", 0),
    ("drive", 1),
    ("queue", 2),
    ("vfs", 3),
    ("journal", 4),
    ("f2fs", 5),
    ("ext4", 5),
    ("pmfs", 5),
    ("plainfs", 5),
    ("subjects", 6),
    ("fuse", 7),
    ("nvme-target", 7),
    ("lab", 7),
    ("linux", 8),
    ("strandline", 9),
];

/// Checks one manifest. The error is that of TOML.
pub(super) fn check(path: &str, text: &str, findings: &mut Vec<Finding>) -> Result<(), String> {
    let manifest: toml::Table = text.parse().map_err(|error| format!("{path}: {error}"))?;
    let name = manifest.get("package").and_then(|p| p.get("name")).and_then(|n| n.as_str());
    let Some(name) = name.map(short) else { return Ok(()) };
    // A fuzz crate or an example is below `crates/NAME`, and so on that crate's floor.
    let nested = path.strip_prefix("crates/").is_some_and(|rest| rest.matches('/').count() > 1);
    let floor = match floor_of(name) {
        Some(floor) => floor,
        None if nested || !path.starts_with("crates/") => return Ok(()),
        None => {
            findings.push(Finding::new(path, 0, format!("crate `{name}` has no floor")));
            return Ok(());
        }
    };
    let targets = manifest.get("target").and_then(|t| t.as_table());
    let platforms = targets.into_iter().flat_map(|t| t.values()).filter_map(|t| t.as_table());
    for table in std::iter::once(&manifest).chain(platforms) {
        for kind in ["dependencies", "dev-dependencies", "build-dependencies"] {
            let dependencies = table.get(kind).and_then(|d| d.as_table());
            for (key, value) in dependencies.into_iter().flatten() {
                let used = value.get("package").and_then(|p| p.as_str()).map_or(&**key, short);
                if floor_of(used).is_some_and(|used| used >= floor) {
                    let line = line_of(text, key);
                    let what =
                        format!("`{name}` must not know `{used}`: it is not on a lower floor");
                    findings.push(Finding::new(path, line, what));
                }
            }
        }
    }
    Ok(())
}

/// A crate's short name: that of its package, without the common prefix.
fn short(package: &str) -> &str {
    package.strip_prefix("strandline-").unwrap_or(package)
}

fn floor_of(name: &str) -> Option<u8> {
    FLOORS.iter().find(|floor| floor.0 == name).map(|floor| floor.1)
}

fn line_of(text: &str, key: &str) -> usize {
    text.lines().position(|line| line.trim_start().starts_with(key)).map_or(0, |n| n + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn findings(name: &str, rest: &str) -> Vec<String> {
        let mut findings = Vec::new();
        let text = format!("[package]\nname = \"{name}\"\n{rest}");
        check("crates/x/Cargo.toml", &text, &mut findings).expect("valid TOML");
        findings.iter().map(|f| format!("{}: {}", f.line, f.what)).collect()
    }

    #[test]
    fn lower_floors_are_fine() {
        let rest = "[dependencies]\ncores.workspace = true\n\
                    drive = { path = \"../drive\" }\nserde = \"1\"";
        assert_eq!(findings("vfs", rest), [""; 0]);
    }

    #[test]
    fn higher_and_equal_floors_are_not() {
        let up = findings("drive", "[dependencies]\nvfs.workspace = true");
        assert_eq!(up, ["4: `drive` must not know `vfs`: it is not on a lower floor"]);
        assert_eq!(findings("ext4", "[dependencies]\nf2fs = { path = \"x\" }").len(), 1);
        assert_eq!(findings("queue", "[dev-dependencies]\nf2fs.workspace = true").len(), 1);
        assert_eq!(findings("cores", "[build-dependencies]\ndrive.workspace = true").len(), 1);
        assert_eq!(
            findings("cores", "[target.'cfg(unix)'.dependencies]\nlab.workspace = true").len(),
            1
        );
        assert_eq!(findings("cores", "[dependencies]\nd = { package = \"drive\" }").len(), 1);
        let named = "[dependencies]\nd = { package = \"strandline-drive\" }";
        assert_eq!(findings("strandline-cores", named).len(), 1);
    }

    #[test]
    fn every_crate_has_a_floor() {
        assert_eq!(findings("attic", ""), ["0: crate `attic` has no floor"]);
    }

    #[test]
    fn broken_manifests_are_an_error() {
        assert!(check("crates/x/Cargo.toml", "[package", &mut Vec::new()).is_err());
    }
}
