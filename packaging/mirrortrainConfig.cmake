# find_package(mirrortrain) defines mirrortrain::mirrortrain, the shared library, or with mirrortrain_STATIC the static
# one; and mirrortrain::mpi, ::tcp and ::cuda (engines.cmake).
include(CMakeFindDependencyMacro)
find_dependency(Threads)
get_filename_component(mirrortrain_PREFIX "${CMAKE_CURRENT_LIST_DIR}/../../.." ABSOLUTE)

if(NOT TARGET mirrortrain::mirrortrain)
  set(mirrortrain_file "${mirrortrain_PREFIX}/lib/${CMAKE_SHARED_LIBRARY_PREFIX}mirrortrain${CMAKE_SHARED_LIBRARY_SUFFIX}")
  if(mirrortrain_STATIC OR NOT EXISTS "${mirrortrain_file}")
    set(mirrortrain_file "${mirrortrain_PREFIX}/lib/${CMAKE_STATIC_LIBRARY_PREFIX}mirrortrain${CMAKE_STATIC_LIBRARY_SUFFIX}")
  endif()
  add_library(mirrortrain::mirrortrain UNKNOWN IMPORTED)
  set_target_properties(mirrortrain::mirrortrain PROPERTIES
    IMPORTED_LOCATION "${mirrortrain_file}"
    INTERFACE_INCLUDE_DIRECTORIES "${mirrortrain_PREFIX}/include"
    INTERFACE_LINK_LIBRARIES "Threads::Threads;m")
  set(mirrortrain_SOURCES "${mirrortrain_PREFIX}/share/mirrortrain")
  include("${CMAKE_CURRENT_LIST_DIR}/engines.cmake")
endif()
