// A shared memory object for tests, unlinked at the end.
//
//   SharedObject object("x", 16);
//   std::memcpy(object.data(), ...);
//   object.Truncate(8);     // data() is not to be touched behind it
#ifndef ATHANOR_SERVER_SHARED_MEMORY_SHARED_OBJECT_TESTING_H_
#define ATHANOR_SERVER_SHARED_MEMORY_SHARED_OBJECT_TESTING_H_

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstdint>
#include <string>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"

namespace athanor {

class SharedObject {
 public:
  // The key is the name's, made this process's own.
  SharedObject(const std::string& name, int64_t bytes)
      : key_(absl::StrCat("/athanor-test-", getpid(), "-", name)), bytes_(bytes) {
    Make();
  }
  SharedObject(const SharedObject&) = delete;
  SharedObject& operator=(const SharedObject&) = delete;
  ~SharedObject() {
    Unlink();
    munmap(data_, bytes_);
  }

  const std::string& key() const { return key_; }
  char* data() const { return static_cast<char*>(data_); }
  void Truncate(int64_t bytes) const {
    const int fd = shm_open(key_.c_str(), O_RDWR, 0);
    EXPECT_EQ(ftruncate(fd, bytes), 0);
    close(fd);
  }
  void Unlink() const { shm_unlink(key_.c_str()); }
  // Makes another object under the same key.
  void Replace() {
    Unlink();
    munmap(data_, bytes_);
    Make();
  }

 private:
  void Make() {
    const int fd = shm_open(key_.c_str(), O_RDWR | O_CREAT | O_EXCL, 0600);
    EXPECT_GE(fd, 0) << key_;
    EXPECT_EQ(ftruncate(fd, bytes_), 0);
    data_ = mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    EXPECT_NE(data_, MAP_FAILED);
    close(fd);
  }

  const std::string key_;
  const int64_t bytes_;
  void* data_ = nullptr;
};

}  // namespace athanor

#endif  // ATHANOR_SERVER_SHARED_MEMORY_SHARED_OBJECT_TESTING_H_
