// Triton's calls about system shared memory, as its REST has them: POST .../region/NAME/register,
// POST .../region/NAME/unregister or .../unregister for all, GET .../region/NAME/status or
// .../status for all.
#ifndef ATHANOR_SERVER_REST_SHARED_MEMORY_H_
#define ATHANOR_SERVER_REST_SHARED_MEMORY_H_

#include "server/core/core.h"
#include "server/http/exchange.h"
#include "server/shared_memory/shared_regions.h"

namespace athanor {

inline constexpr char kSharedMemoryPath[] = "/v2/systemsharedmemory/";

SharedUser SharedUserOf(const HttpExchange& exchange);

// Answers a request whose path begins with kSharedMemoryPath.
void AnswerSharedMemory(ServerCore& core, HttpExchange& exchange);

}  // namespace athanor

#endif  // ATHANOR_SERVER_REST_SHARED_MEMORY_H_
