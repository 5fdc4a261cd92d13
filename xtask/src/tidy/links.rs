//! Links and paths in documents must lead somewhere.
//!
//! Documents are read on a code host and, those below `docs/`, as a book that has nothing else. So
//! a page of the book may link only to what is below `docs/`, and the book's summary must list
//! every page. A path in code quotes (`fsync/need.rs`, `crates/fuse/`) must be the end of some path
//! in the tree; otherwise it would be forgotten when a file moves. CHANGELOG.md may name what is
//! gone.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Component, Path, PathBuf};

use pulldown_cmark::{Event, Options, Parser, Tag, TagEnd};

use super::{Finding, read};

const SUMMARY: &str = "docs/SUMMARY.md";
const HISTORY: &str = "CHANGELOG.md";

/// What a page points to, each with its line, and the anchors to which others can point.
#[derive(Default)]
struct Page {
    links: Vec<(usize, String)>,
    paths: Vec<(usize, String)>,
    anchors: BTreeSet<String>,
}

impl Page {
    fn parse(text: &str) -> Self {
        let mut page = Self::default();
        let mut heading: Option<String> = None;
        for (event, at) in Parser::new_ext(text, Options::ENABLE_TABLES).into_offset_iter() {
            let line = text[..at.start].matches('\n').count() + 1;
            match event {
                Event::Start(Tag::Link { dest_url, .. } | Tag::Image { dest_url, .. }) => {
                    page.links.push((line, dest_url.into_string()));
                }
                Event::Start(Tag::Heading { .. }) => heading = Some(String::new()),
                Event::End(TagEnd::Heading(_)) => {
                    page.anchors.insert(anchor(&heading.take().unwrap_or_default()));
                }
                Event::Text(words) | Event::Code(words) if heading.is_some() => {
                    heading.get_or_insert_default().push_str(&words);
                }
                Event::Code(words) if is_path(&words) => {
                    page.paths.push((line, words.into_string()));
                }
                _ => {}
            }
        }
        page
    }
}

/// A heading's anchor, as code hosts and mdBook make it.
fn anchor(heading: &str) -> String {
    let kept = heading.chars().filter(|c| c.is_alphanumeric() || " -_".contains(*c));
    kept.map(|c| if c == ' ' { '-' } else { c.to_ascii_lowercase() }).collect()
}

/// Whether a code span names a file or a directory of the tree.
fn is_path(span: &str) -> bool {
    let ends = [".rs", ".toml", ".md", "/"].iter().any(|end| span.ends_with(end));
    ends && !span.starts_with(['/', '.'])
        && span.chars().all(|c| c.is_ascii_alphanumeric() || "/._-".contains(c))
}

/// Checks all documents. `tree` has every file and directory, as paths from the root.
pub(super) fn check(
    root: &Path,
    tree: &BTreeSet<String>,
    findings: &mut Vec<Finding>,
) -> Result<(), String> {
    let mut pages = BTreeMap::new();
    for name in tree.iter().filter(|name| name.ends_with(".md")) {
        pages.insert(name.as_str(), Page::parse(&read(&root.join(name))?));
    }
    for (name, page) in &pages {
        for (line, link) in page.links.iter().filter(|(_, link)| !link.contains("://")) {
            if let Some(what) = broken(name, link, tree, &pages) {
                findings.push(Finding::new(name, *line, format!("{link}: {what}")));
            }
        }
        for (line, path) in page.paths.iter().filter(|_| *name != HISTORY) {
            let end = path.trim_end_matches('/');
            let leads = |known: &String| known.strip_suffix(end).is_some_and(ends_a_name);
            if !tree.iter().any(leads) {
                findings.push(Finding::new(
                    name,
                    *line,
                    format!("`{path}` is nowhere in the tree"),
                ));
            }
        }
    }
    let listed: BTreeSet<String> = pages.get(SUMMARY).map_or_else(BTreeSet::new, |summary| {
        summary.links.iter().map(|(_, link)| target(SUMMARY, link)).collect()
    });
    for name in pages.keys().filter(|name| name.starts_with("docs/") && **name != SUMMARY) {
        if !listed.contains(*name) {
            findings.push(Finding::new(name, 0, format!("{SUMMARY} does not list this page")));
        }
    }
    Ok(())
}

fn ends_a_name(before: &str) -> bool {
    before.is_empty() || before.ends_with('/')
}

/// What is wrong with a link of page `from`, if anything.
fn broken(
    from: &str,
    link: &str,
    tree: &BTreeSet<String>,
    pages: &BTreeMap<&str, Page>,
) -> Option<&'static str> {
    let (path, fragment) = link.split_once('#').unwrap_or((link, ""));
    let to = if path.is_empty() { from.to_owned() } else { target(from, path) };
    if !tree.contains(&to) {
        Some("there is no such file")
    } else if from.starts_with("docs/") && !to.starts_with("docs/") {
        Some("the book does not hold it; name it in code quotes")
    } else if !fragment.is_empty()
        && !pages.get(to.as_str()).is_some_and(|page| page.anchors.contains(fragment))
    {
        Some("there is no such heading")
    } else {
        None
    }
}

/// The path from the root to which a link of page `from` leads.
fn target(from: &str, link: &str) -> String {
    let mut path = PathBuf::from(from);
    path.pop();
    for part in Path::new(link).components() {
        match part {
            Component::ParentDir => drop(path.pop()),
            Component::Normal(name) => path.push(name),
            _ => {}
        }
    }
    path.display().to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_knows_its_links_paths_and_anchors() {
        let page = Page::parse("# A `b` c's D_e\n\n[x](y.md#z) and\n`fsync/need.rs`, `a b.rs`\n");
        assert_eq!(page.links, [(3, "y.md#z".to_owned())]);
        assert_eq!(page.paths, [(4, "fsync/need.rs".to_owned())]);
        assert!(page.anchors.contains("a-b-cs-d_e"), "{:?}", page.anchors);
    }

    #[test]
    fn what_leads_nowhere_is_found() {
        let tree: BTreeSet<String> =
            ["docs/a.md", "docs/b/c.md", "src/x.rs"].map(String::from).into();
        let pages = BTreeMap::from([("docs/b/c.md", Page::parse("# Here\n"))]);
        let wrong = |link| broken("docs/a.md", link, &tree, &pages).is_some();
        assert!(!wrong("b/c.md#here") && !wrong("./b/c.md"));
        assert!(wrong("b/c.md#there") && wrong("c.md") && wrong("../src/x.rs") && wrong("#here"));
    }
}
