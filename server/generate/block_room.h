// The memory of an engine's blocks, as others ask for it.
//
//   std::shared_ptr<BlockRoom> room = engine->room().lock();
//   if (room->unused_bytes() >= lacking) room->Await(lacking, until);
//
// Thread-safe; may outlive the engine, and does nothing then.
#ifndef ATHANOR_SERVER_GENERATE_BLOCK_ROOM_H_
#define ATHANOR_SERVER_GENERATE_BLOCK_ROOM_H_

#include <cstdint>

#include "server/generate/schedule/sequence.h"

namespace athanor {

class BlockRoom {
 public:
  virtual ~BlockRoom() = default;

  // Returns about how many bytes the engine could give back: those of blocks that no sequence has.
  // Where blocks share pages, some go back only with their neighbours.
  virtual int64_t unused_bytes() const = 0;
  // Asks for so many bytes of them; of several requests ahead of the engine's next step the largest
  // counts: they may be one that comes again. The engine gives between two steps, and no more than
  // it has. Any thread may ask, the engine's own too.
  virtual void Ask(int64_t bytes) = 0;
  // As Ask, beside all that was asked for; returns once that is done, at `until`, or at once where
  // there is nothing. Not for an engine's thread.
  virtual void Await(int64_t bytes, SequenceTime until) = 0;
};

}  // namespace athanor

#endif  // ATHANOR_SERVER_GENERATE_BLOCK_ROOM_H_
