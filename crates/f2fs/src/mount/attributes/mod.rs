//! The attributes of a mounted volume: two tables, of what can be set ([`knobs`]) and of what is
//! only shown ([`status`]), and two that are text ([`extensions`], [`limits`]). Everything else
//! that knows an attribute's name takes it from there.

mod extensions;
mod knobs;
mod limits;
mod modes;
mod not_here;
mod status;

use serde_json::{Map, Value};
use vfs::attributes::{Attribute, AttributeError, Shown, in_words, number};
use vfs::options::{Given, MountOption, OptionError};

use crate::F2fs;
use crate::error::{Error, Result};
use crate::mount::options::MountOptions;
use crate::mount::versions::{self, has_attribute};

pub use knobs::Knobs;
pub(crate) use knobs::{Geometry, MAX_PIN_FAILURES};
pub use modes::{GcMode, IpuPolicy};
pub use not_here::NOT_HERE;
pub use status::Status;

/// The attributes that are text.
const TEXTS: [&str; 2] = [extensions::NAME, limits::NAME];

/// Sets several attributes by name: all of them or, if one is wrong, none.
pub(crate) fn set(knobs: &mut Knobs, settings: &[(&str, &str)]) -> Result<(), AttributeError> {
    let mut changed = *knobs;
    for (name, value) in settings {
        let knob = knobs::TABLE.iter().find(|knob| knob.name == *name);
        let knob = knob.ok_or_else(|| AttributeError::Unknown {
            name: (*name).to_owned(),
            known: knobs::TABLE.iter().map(|knob| knob.name).chain(TEXTS).collect(),
        })?;
        (knob.set)(&mut changed, number(knob.name, &knob.range, value)?);
    }
    *knobs = changed;
    Ok(())
}

/// Fails if a volume that is mounted with `options` does not have one of these attributes, because
/// it came after its version of Linux or with a change that is switched off.
pub(crate) fn check_known<'a>(
    names: impl Iterator<Item = &'a str>,
    options: &MountOptions,
) -> Result<()> {
    if options.linux.is_none() && options.without.is_empty() {
        return Ok(());
    }
    for name in names {
        let row = table().into_iter().find(|row| row.name == name);
        let since = row.map_or("", |row| row.since);
        if let Some(linux) = options.linux.filter(|linux| !has_attribute(*linux, since)) {
            return Err(Error::usage(format!("{name}: Linux {linux} does not have it")));
        }
        if let Some(change) = versions::needed_for(name, options) {
            return Err(Error::usage(format!("{name}: not without={change}")));
        }
    }
    Ok(())
}

/// The mount options that set attributes.
pub(crate) struct Settings;

impl MountOption<MountOptions> for Settings {
    fn forms(&self) -> Vec<(&'static str, Option<&'static str>)> {
        knobs::TABLE.iter().map(|knob| (knob.name, Some("NUMBER"))).collect()
    }

    fn set(&self, options: &mut MountOptions, given: Given<'_>) -> Option<OptionResult> {
        let knob = knobs::TABLE.iter().find(|knob| knob.name == given.name)?;
        let Some(value) = given.value else { return Some(Err(given.wrong(in_words(&knob.range)))) };
        let number = number(knob.name, &knob.range, value);
        Some(number.map(|number| options.settings.push((knob.name, number))).map_err(Into::into))
    }

    fn show(&self, options: &mut MountOptions, said: &mut MountOptions) -> Option<String> {
        said.settings.clone_from(&options.settings);
        let all = options.settings.iter().map(|(name, value)| format!("{name}={value}"));
        (!options.settings.is_empty()).then(|| all.collect::<Vec<_>>().join(","))
    }
}

type OptionResult = Result<(), OptionError>;

/// Both tables, those that can be set first.
pub(crate) fn table() -> Vec<Attribute> {
    let knobs = knobs::TABLE.iter().map(|knob| Attribute {
        without_effect: knob.without_effect.first().copied(),
        ..Attribute::set(knob.name, knob.since, knob.about, in_words(&knob.range))
    });
    let shown = status::TABLE.iter().map(Shown::attribute);
    knobs.chain([extensions::row(), limits::row()]).chain(shown).collect()
}

impl Status {
    /// Every attribute by name, those first that are only shown.
    pub(crate) fn by_name(&self) -> Map<String, Value> {
        let shown = status::TABLE.iter().map(|row| (row.name, (row.show)(self)));
        let knobs = knobs::TABLE.iter().map(|row| (row.name, (row.show)(&self.knobs)));
        let texts = [&self.extension_list, &self.quota_limits].map(Clone::clone);
        shown
            .chain(knobs)
            .chain(TEXTS.into_iter().zip(texts))
            .map(|(name, value)| (name.to_owned(), value))
            .collect()
    }
}

impl F2fs {
    /// The table, with the values of this volume.
    pub(crate) fn attributes(&self) -> Vec<Attribute> {
        let values = self.status().by_name();
        let defaults = self.default_knobs();
        let mut rows = table();
        for row in &mut rows {
            row.value = values.get(row.name).cloned();
            let knob = knobs::TABLE.iter().find(|knob| knob.name == row.name);
            row.default = knob.map(|knob| (knob.show)(&defaults));
            if TEXTS.contains(&row.name) {
                row.default = Some("as on the volume".into());
            }
        }
        rows
    }

    /// Sets several attributes: all of them or, if one is wrong, none.
    pub fn set_tunables(&self, settings: &[(&str, &str)]) -> Result<()> {
        check_known(settings.iter().map(|(name, _)| *name), self.options())?;
        let numbers: Vec<_> =
            settings.iter().copied().filter(|(name, _)| !TEXTS.contains(name)).collect();
        let [extensions, limits] = TEXTS.map(|text| {
            let of_name = settings.iter().filter(|(name, _)| *name == text);
            of_name.map(|(_, value)| *value).collect::<Vec<_>>()
        });
        let mut volume = self.settled();
        let raw = extensions::edited(&volume, &extensions)?;
        let mut changed = self.knobs();
        set(&mut changed, &numbers)?;
        if changed.gc_mode() == GcMode::IdleAt && !volume.atgc {
            let why = "gc_idle: 3 needs a mount with atgc and a volume of atgc_age_threshold";
            return Err(Error::usage(why));
        }
        limits::set(&mut volume, &limits)?;
        if let Some(raw) = raw {
            extensions::store(&mut volume, raw)?;
        }
        let knobs = self.change_knobs(|knobs| set(knobs, &numbers))?;
        volume.set_knobs(knobs);
        Ok(())
    }
}
