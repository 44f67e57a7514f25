# What is compiled with the program that uses it, from mirrortrain_SOURCES: mirrortrain::mpi and mirrortrain::tcp, with
# which several processes train one model, and mirrortrain::cuda, with which they train on GPUs. mirrortrain::mpi needs
# find_package(MPI) in the project before; mirrortrain::cuda needs enable_language(CUDA) and find_package(CUDAToolkit).
foreach(mirrortrain_part mpi tcp cuda)
  add_library(mirrortrain::${mirrortrain_part} INTERFACE IMPORTED GLOBAL)
  set_property(TARGET mirrortrain::${mirrortrain_part} PROPERTY INTERFACE_LINK_LIBRARIES mirrortrain::mirrortrain)
endforeach()
set_property(TARGET mirrortrain::mpi PROPERTY INTERFACE_SOURCES "${mirrortrain_SOURCES}/mirrortrain_mpi.c")
set_property(TARGET mirrortrain::tcp PROPERTY INTERFACE_SOURCES "${mirrortrain_SOURCES}/mirrortrain_tcp.c")
set_property(TARGET mirrortrain::cuda PROPERTY INTERFACE_SOURCES "${mirrortrain_SOURCES}/mirrortrain_cuda.cu")
set_property(TARGET mirrortrain::mpi APPEND PROPERTY INTERFACE_LINK_LIBRARIES MPI::MPI_C)
set_property(TARGET mirrortrain::cuda APPEND PROPERTY INTERFACE_LINK_LIBRARIES CUDA::cublas)
# The file looks for <nccl.h>, which may lie beside CUDA's own headers.
find_program(mirrortrain_NVCC nvcc PATHS /usr/local/cuda/bin)
get_filename_component(mirrortrain_cuda_bin "${mirrortrain_NVCC}" DIRECTORY)
find_library(mirrortrain_NCCL nccl HINTS "${mirrortrain_cuda_bin}/../lib64" "${mirrortrain_cuda_bin}/../lib")
if(mirrortrain_NCCL)
  set_property(TARGET mirrortrain::cuda APPEND PROPERTY INTERFACE_LINK_LIBRARIES "${mirrortrain_NCCL}")
endif()
