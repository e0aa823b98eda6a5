//! Every check, in order.
use anyhow::Result;
#[derive(clap::Args, Debug)]
pub(crate) struct Arguments {}
pub(crate) fn run(_: &Arguments) -> Result<()> {
    crate::guests::build_all()
}
