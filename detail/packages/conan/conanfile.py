import os
import re

from conan import ConanFile
from conan.tools.cmake import CMake, CMakeDeps, CMakeToolchain
from conan.tools.files import copy, load, rmdir


class QuernConan(ConanFile):
    """conan create detail/packages/conan, from a checkout of the sources."""

    name = "quern"
    description = "Block-quantized weights of GGUF model files, with the block order in the type"
    license = "MIT"
    package_type = "header-library"
    settings = "os", "arch", "compiler", "build_type"
    options = {"eigen": [True, False]}
    default_options = {"eigen": False}
    no_copy_source = True

    def _root(self):
        return os.path.normpath(os.path.join(self.recipe_folder, "..", "..", ".."))

    def set_version(self):
        header = load(self, os.path.join(self._root(), "include", "quern", "version.hpp"))
        self.version = ".".join(
            re.search(rf"#define QUERN_VERSION_{part} (\d+)", header).group(1)
            for part in ("MAJOR", "MINOR", "PATCH"))

    def export_sources(self):
        for pattern in ("CMakeLists.txt", "LICENSE", "include/*", "detail/*", "kernels/*"):
            copy(self, pattern, self._root(), self.export_sources_folder)

    def requirements(self):
        self.requires("boost/[>=1.74]", options={"header_only": True})
        if self.options.eigen:
            self.requires("eigen/[>=3.4 <4]")

    def generate(self):
        CMakeDeps(self).generate()
        toolchain = CMakeToolchain(self)
        for part in ("TESTS", "EXAMPLES", "BENCHMARKS"):
            toolchain.cache_variables[f"QUERN_BUILD_{part}"] = False
        toolchain.cache_variables["QUERN_EIGEN"] = "ON" if self.options.eigen else "OFF"
        toolchain.generate()

    def build(self):
        CMake(self).configure()

    def package(self):
        CMake(self).install()
        rmdir(self, os.path.join(self.package_folder, "share", "cmake"))

    def package_id(self):
        self.info.clear()

    def package_info(self):
        self.cpp_info.bindirs = []
        self.cpp_info.libdirs = []
        core = self.cpp_info.components["core"]
        core.set_property("cmake_target_name", "quern::quern")
        core.requires = ["boost::headers"]
        if self.options.eigen:
            eigen = self.cpp_info.components["eigen"]
            eigen.set_property("cmake_target_name", "quern::eigen")
            eigen.requires = ["core", "eigen::eigen"]
