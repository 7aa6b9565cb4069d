# An overlay port: vcpkg install quern --overlay-ports=detail/packages, from a checkout of the sources.
set(VCPKG_BUILD_TYPE release) # headers alone
get_filename_component(SOURCE_PATH "${CMAKE_CURRENT_LIST_DIR}/../../.." ABSOLUTE)
set(eigen OFF)
if("eigen" IN_LIST FEATURES)
  set(eigen ON)
endif()
vcpkg_cmake_configure(
  SOURCE_PATH "${SOURCE_PATH}"
  OPTIONS -DQUERN_BUILD_TESTS=OFF -DQUERN_BUILD_EXAMPLES=OFF -DQUERN_BUILD_BENCHMARKS=OFF
          -DQUERN_EIGEN=${eigen})
vcpkg_cmake_install()
vcpkg_cmake_config_fixup(CONFIG_PATH share/cmake/quern)
file(REMOVE_RECURSE "${CURRENT_PACKAGES_DIR}/lib")
vcpkg_install_copyright(FILE_LIST "${SOURCE_PATH}/LICENSE")
