//! `strandline tune`: settings of a mounted volume, under the names of `/sys/fs/f2fs/<disk>/`.

use std::path::{Path, PathBuf};

use clap::Args;
use serde_json::{Map, Value};

use crate::failure::{Failure, Outcome};
use crate::mounted::Mounted;
use crate::out;

/// Show and change settings of a mounted volume, with the kernel's names.
#[derive(Args)]
#[command(after_help = "\
Examples:
  strandline tune /mnt
  strandline tune /mnt gc_urgent
  strandline tune /mnt gc_urgent=1
  strandline tune /mnt cp_interval=10 max_roll_forward_node_blocks=1000
  strandline tune --list

Names and values are those of /sys/fs/f2fs/<disk>/; `strandline status` shows them, too. They hold
until the volume is unmounted. If one of them is refused, none is set.")]
pub(crate) struct Tune {
    /// Directory the volume is mounted on
    #[arg(required_unless_present = "list")]
    dir: Option<PathBuf>,
    /// Settings to show (NAME) or to change (NAME=VALUE); without any, all are shown
    #[arg(value_name = "NAME[=VALUE]")]
    settings: Vec<String>,
    /// Show what there is on a volume of F2FS, without one
    #[arg(long, conflicts_with = "dir")]
    list: bool,
    /// One JSON object a line
    #[arg(long)]
    json: bool,
}

/// What a request to a mount has room for, besides its name (`XATTR_NAME_MAX`).
const SETTINGS_MAX: usize = 230;

type Row = Map<String, Value>;

impl Tune {
    pub(crate) fn run(self) -> Outcome {
        let Some(dir) = &self.dir else {
            let format =
                subjects::named("f2fs").map_err(|error| Failure::Usage(error.to_string()))?;
            let rows = format.attributes().into_iter().map(serde_json::to_value);
            let rows: Result<Vec<Value>, _> = rows.collect();
            let rows = rows.map_err(|error| Failure::Problem(error.to_string()))?;
            return self.show(&settable(rows));
        };
        let sets = self.settings.iter().filter(|setting| setting.contains('=')).count();
        if sets == 0 {
            return self.show(&self.chosen(dir)?);
        }
        if let Some(wrong) = self.settings.iter().find(|setting| !setting.contains('=')) {
            return Err(Failure::Usage(format!("{wrong}: not NAME=VALUE, as the others")));
        }
        set(dir, &self.settings.join(","))
    }

    /// The attributes named, or all that can be set.
    fn chosen(&self, dir: &Path) -> Outcome<Vec<Row>> {
        let text = Mounted::on(dir)?.ask("attributes")?;
        let rows: Vec<Value> = serde_json::from_slice(&text).map_err(Failure::host(dir))?;
        if self.settings.is_empty() {
            return Ok(settable(rows));
        }
        let all: Vec<Row> = rows.into_iter().filter_map(object).collect();
        let find = |name: &String| {
            let row = all.iter().find(|row| row.get("name") == Some(&Value::from(name.as_str())));
            row.cloned().ok_or_else(|| {
                let names = all.iter().filter_map(|row| row.get("name")?.as_str());
                let like = vfs::options::similar(name, names);
                let like = like.map_or_else(String::new, |like| format!("; did you mean {like}?"));
                Failure::Usage(format!("{name}: no such attribute{like}"))
            })
        };
        self.settings.iter().map(find).collect()
    }

    /// Shows values alone if some were asked for by name, and else what there is to know.
    fn show(&self, rows: &[Row]) -> Outcome {
        let field = |row: &Row, name: &str| match row.get(name) {
            Some(Value::String(text)) => text.clone(),
            None | Some(Value::Null) => String::new(),
            Some(value) => value.to_string(),
        };
        let width = rows.iter().map(|row| field(row, "name").len()).max().unwrap_or(0);
        for row in rows {
            if self.json {
                out::json(row)?;
                continue;
            }
            let (name, value) = (field(row, "name"), field(row, "value"));
            if !self.settings.is_empty() {
                let text = if rows.len() == 1 { value } else { format!("{name:width$} {value}") };
                out::line(text)?;
                continue;
            }
            let default = field(row, "default");
            let value = match default.is_empty() {
                true => String::new(),
                false if default == value => format!(" {value}"),
                false => format!(" {value} (was {default})"),
            };
            out::line(format!("{name:width$}{value}"))?;
            let since = match field(row, "since") {
                since if since.is_empty() => "ours".to_owned(),
                since => format!("Linux {since}"),
            };
            let about = field(row, "about");
            let why = field(row, "without_effect");
            let why = if why.is_empty() { why } else { format!(" No effect here: {why}.") };
            out::line(format!("    {about}{why} [{}; {since}]", field(row, "allowed")))?;
        }
        Ok(0)
    }
}

fn object(value: Value) -> Option<Row> {
    if let Value::Object(row) = value { Some(row) } else { None }
}

fn settable(rows: Vec<Value>) -> Vec<Row> {
    let rows = rows.into_iter().filter_map(object);
    rows.filter(|row| row.get("allowed").is_some_and(|allowed| !allowed.is_null())).collect()
}

fn set(dir: &Path, settings: &str) -> Outcome {
    let mounted = Mounted::on(dir)?;
    if settings.len() > SETTINGS_MAX {
        let most = format!("at most {SETTINGS_MAX} bytes of settings at a time");
        return Err(Failure::Usage(most));
    }
    let refusal = mounted.ask(&format!("tune={settings}"))?;
    if !refusal.is_empty() {
        return Err(Failure::Usage(String::from_utf8_lossy(&refusal).into_owned()));
    }
    Ok(0)
}
