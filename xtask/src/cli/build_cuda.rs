//! What `cargo xtask build` has for CUDA alone.

use serde_json::json;

use crate::build::cuda::{self, GpuWish, probe};
use crate::build::lookup::Lookup;
use crate::cli::{Outcome, Status};
use crate::ctx::Ctx;
use crate::error::{Error, Result, ResultExt};
use crate::gate::artifacts::elf::Elf;
use crate::model::{Base, Flavour};

/// The backend.
pub const NAME: &str = "cuda";

/// Flags of `build` for CUDA.
#[derive(Debug, clap::Args)]
pub struct CudaArgs {
    /// GPUs that a build for CUDA is for: `90`, `80;90;120` or `native`, those of this machine
    /// [default: as before, else native]
    #[arg(long, value_name = "LIST")]
    arch: Option<String>,
    /// Do not build: configure for CUDA, compile what the series touches and two kernels, and look at them
    /// [default: of the patched tree]
    #[arg(long)]
    pub probe: bool,
}

impl CudaArgs {
    /// The GPUs that are asked for. What is asked for without the backend is a usage error.
    pub fn gpus(&self, backends: &[String]) -> Result<Option<GpuWish>> {
        let gpus = self.arch.as_deref().map(cuda::wish).transpose();
        let gpus = gpus.context(|| "--arch".to_owned())?;
        let is_for_cuda = backends.iter().any(|name| name == NAME);
        for (flag, is_given) in [("--arch", gpus.is_some()), ("--probe", self.probe)] {
            if is_given && !is_for_cuda {
                return Err(
                    Error::usage(format!("{flag} is for CUDA alone")).hint("add --backend cuda")
                );
            }
        }
        if self.probe && backends.len() > 1 {
            return Err(Error::usage("--probe is of one backend").hint("--backend cuda"));
        }
        Ok(gpus)
    }
}

/// Runs `--probe`.
pub fn probe(
    ctx: &Ctx,
    lookup: &dyn Lookup,
    base: &Base,
    flavour: Flavour,
    gpus: Option<GpuWish>,
) -> Result<Outcome> {
    let found = probe::run(ctx, lookup, base, flavour, gpus)?;
    let elf = Elf::read(&found.library)?.unwrap_or_default();
    let needed: Vec<&str> = elf.needed.iter().map(String::as_str).collect();
    let text = format!(
        "{} {}-cuda for {} with CUDA {}: {} sources of the series and {} kernels compile\n  \
         linked {}: {}; needs {}; exports {} symbols\n",
        found.base,
        found.flavour,
        found.archs,
        found.toolkit,
        found.touched.len(),
        found.kernels.len(),
        ctx.project.show(&found.library),
        images(&found.images),
        needed.join(" "),
        elf.exports.len(),
    );
    Ok(Outcome {
        text,
        data: json!({ "probe": found, "needed": needed, "exports": elf.exports.len() }),
        status: Status::Good,
    })
}

/// What a file holds for GPUs, in one line.
pub fn images(images: &cuda::Images) -> String {
    let list = |map: &std::collections::BTreeMap<String, usize>, prefix: &str| {
        let names = map.iter();
        let names = names.map(|(name, count)| format!("{prefix}{name} ({count})"));
        names.collect::<Vec<_>>().join(", ")
    };
    let mut parts = Vec::new();
    if !images.cubins.is_empty() {
        parts.push(format!("code for {}", list(&images.cubins, "sm_")));
    }
    if !images.ptx.is_empty() {
        parts.push(format!("PTX for {}", list(&images.ptx, "compute_")));
    }
    if parts.is_empty() {
        return "no code for GPUs".to_owned();
    }
    let all: usize = images.cubins.values().chain(images.ptx.values()).sum();
    format!(
        "{}; {} of {all} compressed, {} bytes",
        parts.join(", "),
        images.compressed,
        images.bytes
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn args(arch: Option<&str>, probe: bool) -> CudaArgs {
        CudaArgs {
            arch: arch.map(str::to_owned),
            probe,
        }
    }

    #[test]
    fn what_is_for_cuda_alone_needs_the_backend() {
        let (cpu, cuda) = (["cpu".to_owned()], [NAME.to_owned()]);
        assert!(args(None, false).gpus(&cpu).unwrap().is_none());
        let error = args(Some("90"), false).gpus(&cpu).unwrap_err();
        assert!(error.message().contains("--arch"), "{error}");
        assert!(args(None, true).gpus(&cpu).is_err());
        assert_eq!(
            args(Some("native"), false).gpus(&cuda).unwrap(),
            Some(GpuWish::Native)
        );
        assert!(args(Some("90"), true).gpus(&cuda).unwrap().is_some());
        let both = [cpu[0].clone(), cuda[0].clone()];
        assert!(args(Some("90"), true).gpus(&both).is_err());
        assert!(args(Some("90"), false).gpus(&both).is_ok());
        let error = args(Some("sm_90"), false).gpus(&cuda).unwrap_err();
        assert_eq!(error.kind(), crate::Kind::Usage);
        assert!(
            error.to_string().contains("--arch: `sm_90` is no"),
            "{error}"
        );
    }
}
