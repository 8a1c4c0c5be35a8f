include("${CMAKE_CURRENT_LIST_DIR}/skaldTargets.cmake")
