//! The command that installs a tool, in the words of this machine's package manager.

use crate::build::lookup::Lookup;

/// Things that a package manager can bring.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Package {
    /// A C and a C++ compiler with their libraries.
    Compilers,
    /// CMake.
    Cmake,
    /// Ninja.
    Ninja,
    /// ccache.
    Ccache,
    /// git.
    Git,
    /// Python 3.
    Python,
    /// pip for Python 3.
    Pip,
    /// `setpriv`.
    Setpriv,
    /// `glslc` of shaderc.
    Glslc,
    /// The Vulkan loader.
    VulkanLoader,
    /// Vulkan and SPIR-V headers.
    VulkanHeaders,
    /// The client of OpenSSH.
    Ssh,
    /// What has the same name everywhere.
    Named(&'static str),
}

/// A package manager: the program that gives it away, the command, its names for packages.
struct Manager {
    program: &'static str,
    install: &'static str,
    name: fn(Package) -> &'static str,
}

const MANAGERS: [Manager; 6] = [
    Manager {
        program: "apt-get",
        install: "sudo apt-get install",
        name: |package| match package {
            Package::Compilers => "build-essential",
            Package::Cmake => "cmake",
            Package::Ninja => "ninja-build",
            Package::Ccache => "ccache",
            Package::Git => "git",
            Package::Python => "python3",
            Package::Pip => "python3-pip",
            Package::Setpriv => "util-linux",
            Package::Glslc => "glslc",
            Package::VulkanLoader => "libvulkan1",
            Package::VulkanHeaders => "libvulkan-dev spirv-headers",
            Package::Ssh => "openssh-client",
            Package::Named(name) => name,
        },
    },
    Manager {
        program: "dnf",
        install: "sudo dnf install",
        name: |package| match package {
            Package::Compilers => "gcc gcc-c++",
            Package::Ninja => "ninja-build",
            Package::Setpriv => "util-linux",
            Package::VulkanLoader => "vulkan-loader",
            Package::VulkanHeaders => "vulkan-headers spirv-headers-devel",
            Package::Ssh => "openssh-clients",
            other => common_name(other),
        },
    },
    Manager {
        program: "pacman",
        install: "sudo pacman -S",
        name: |package| match package {
            Package::Compilers => "base-devel",
            Package::Python => "python",
            Package::Pip => "python-pip",
            Package::Glslc => "shaderc",
            Package::VulkanLoader => "vulkan-icd-loader",
            other => common_name(other),
        },
    },
    Manager {
        program: "zypper",
        install: "sudo zypper install",
        name: |package| match package {
            Package::Compilers => "gcc gcc-c++",
            Package::Glslc => "shaderc",
            Package::VulkanLoader => "libvulkan1",
            other => common_name(other),
        },
    },
    Manager {
        program: "apk",
        install: "sudo apk add",
        name: |package| match package {
            Package::Compilers => "build-base linux-headers",
            Package::Ninja => "ninja-build",
            Package::Pip => "py3-pip",
            Package::Setpriv => "setpriv",
            Package::Glslc => "shaderc",
            Package::VulkanLoader => "vulkan-loader",
            other => common_name(other),
        },
    },
    Manager {
        program: "brew",
        install: "brew install",
        name: |package| match package {
            Package::Python | Package::Pip => "python",
            Package::Glslc => "shaderc",
            Package::VulkanLoader => "vulkan-loader",
            other => common_name(other),
        },
    },
];

fn common_name(package: Package) -> &'static str {
    match package {
        Package::Compilers => "gcc",
        Package::Cmake => "cmake",
        Package::Ninja => "ninja",
        Package::Ccache => "ccache",
        Package::Git => "git",
        Package::Python => "python3",
        Package::Pip => "python3-pip",
        Package::Setpriv => "util-linux",
        Package::Glslc => "glslc",
        Package::VulkanLoader => "vulkan-loader",
        Package::VulkanHeaders => "vulkan-headers spirv-headers",
        Package::Ssh => "openssh",
        Package::Named(name) => name,
    }
}

/// The command that installs `packages`. Without a known package manager it says in words what
/// to install.
pub fn install_command(lookup: &dyn Lookup, packages: &[Package]) -> String {
    if cfg!(target_os = "macos") && packages.contains(&Package::Compilers) {
        return "xcode-select --install".to_owned();
    }
    let manager = MANAGERS
        .iter()
        .find(|manager| lookup.find(manager.program).is_some());
    let names = |name: fn(Package) -> &'static str, between: &str| -> String {
        let names: Vec<&str> = packages.iter().map(|package| name(*package)).collect();
        names.join(between)
    };
    match manager {
        Some(manager) => format!("{} {}", manager.install, names(manager.name, " ")),
        None => format!(
            "install {} with your package manager",
            names(common_name, ", ")
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::build::lookup::fake::Fake;

    #[test]
    fn the_command_is_that_of_the_machine() {
        let wanted = [Package::Compilers, Package::Ninja];
        for (program, command) in [
            (
                "apt-get",
                "sudo apt-get install build-essential ninja-build",
            ),
            ("dnf", "sudo dnf install gcc gcc-c++ ninja-build"),
            ("pacman", "sudo pacman -S base-devel ninja"),
        ] {
            let machine = Fake::default().with(program, "");
            assert_eq!(install_command(&machine, &wanted), command);
        }
        assert_eq!(
            install_command(&Fake::default(), &[Package::Cmake]),
            "install cmake with your package manager"
        );
    }
}
