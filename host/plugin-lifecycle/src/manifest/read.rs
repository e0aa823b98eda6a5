//! From a document to a [`Manifest`]: the keys at its root and `[settings]`; each of the
//! other tables has a file of its own beside this one.

use wasm::ListenerKind;

use super::name::PluginName;
use super::{
    Manifest, PLUGIN_PROPERTY, SETTINGS_MAX, breaker, build, grants, group, limits, secrets,
};
use crate::document::{Document, Section};
use crate::problem::{Fault, beside};
use crate::revision::Digest;
use crate::source::Source;

/// `None` only beside a problem.
pub(super) fn read(document: &Document<'_>) -> Option<Manifest> {
    let root = document.root();
    let name = root.required("name", "\"hello\"", |value| {
        PluginName::parse(value.text()?)
    });
    let component = root.required("component", "\"target/mqlet/hello.wasm\"", |value| {
        Source::parse(value.text()?)
    });
    let sha256 = root.optional("sha256", |value| {
        value
            .text()?
            .parse()
            .map_err(|error: crate::revision::ParseDigestError| {
                Fault::new(
                    error.to_string(),
                    "write 64 hexadecimal digits, as sha256sum prints them",
                )
            })
    });
    let listener = root.optional("listener", |value| {
        let kinds = ListenerKind::ALL.map(|kind| (kind.name(), kind));
        value.choice(&kinds, &[])
    });
    let group = group::read(&root, listener.unwrap_or_default());
    let limits = limits::read(root.section("limits"));
    let grants = grants::read(document.file(), root.section("grants"));
    limits::refuse_in_worker(
        &root.section("limits"),
        &limits,
        listener.unwrap_or_default(),
        &grants,
    );
    let breaker = breaker::read(root.section("breaker"));
    let settings = settings(&root.section("settings"));
    let secrets = root.section("secrets");
    let secrets = secrets::read(document.file(), &secrets, &settings, &grants);
    let grants_place = root.place("grants");
    let secrets_place = root.place("secrets");
    let build = build::read(document.file(), root.section("build"));
    let dev = build::read_dev(document.file(), root.section("dev"));
    let component_place = root.place("component");
    let name_place = root.place("name");
    let consumer_group_place = root.place("consumer_group");
    let sha256 = pinned(&root, component.as_ref(), sha256, build.is_some());
    root.refuse_unknown();

    let (consumer_group, group) = group?;
    let name = name?;
    let group =
        group.dead_letter_properties(vec![(PLUGIN_PROPERTY.to_owned(), name.as_str().to_owned())]);
    Some(Manifest {
        file: document.file().to_owned(),
        text: "".into(),
        name,
        name_place,
        source: match component?.0 {
            Source::File(path) => Source::File(beside(document.file(), &path)),
            remote => remote,
        },
        component_place,
        kept_at: None,
        sha256,
        listener,
        group,
        consumer_group,
        consumer_group_place,
        limits,
        grants,
        grants_place,
        secrets,
        secrets_place,
        breaker,
        settings,
        build,
        dev,
    })
}

/// The digest that is wanted: of the key, or of the address. What comes from a server
/// nobody vouches for has one; a registry's reference is as good as its tag.
fn pinned(
    root: &Section<'_, '_>,
    component: Option<&(Source, Option<Digest>)>,
    of_key: Option<Digest>,
    is_built: bool,
) -> Option<Digest> {
    let (source, of_address) = component?;
    if is_built && source.is_remote() {
        root.fault(
            "component",
            Fault::new(
                "is not on this machine, and [build] writes it",
                "write the path that is built, or remove [build]",
            ),
        );
    }
    if let (Some(of_key), Some(of_address)) = (of_key, of_address)
        && of_key != *of_address
    {
        let what = format!("is not the digest that component has, {of_address}");
        root.fault("sha256", Fault::new(what, "remove one of the two"));
    }
    let wanted = of_key.or(*of_address);
    if matches!(source, Source::Web(_)) && wanted.is_none() && !root.has("sha256") {
        root.fault(
            "component",
            Fault::new(
                "has no digest",
                "add #sha256= and the 64 digits that sha256sum prints for it: other bytes are then refused",
            ),
        );
    }
    wanted
}

fn settings(section: &Section<'_, '_>) -> Vec<(String, String)> {
    let settings = section.entries(|value| {
        value.text().map(str::to_owned).map_err(|fault| {
            Fault::new(
                fault.what,
                "settings are texts: put it in quotes; `init` gets it as it is",
            )
        })
    });
    if settings.len() > SETTINGS_MAX {
        section.fault(
            "",
            Fault::new(
                format!("has more than {SETTINGS_MAX} entries"),
                "put them in the component",
            ),
        );
    }
    settings
}
