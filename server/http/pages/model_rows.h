// Draws a model version of the status page: a row of the table with what matters most, and a second
// one with the rest, which is closed until somebody opens it.
#ifndef ATHANOR_SERVER_HTTP_PAGES_MODEL_ROWS_H_
#define ATHANOR_SERVER_HTTP_PAGES_MODEL_ROWS_H_

#include <cstddef>
#include <string>

#include "server/http/pages/drawing.h"

namespace athanor {

// Draws the table's head; its columns can be sorted by, once the script is there.
std::string ModelHead();
// Draws the rows of models[index] as a <tbody>.
std::string ModelRows(const Drawing& draw, size_t index);

}  // namespace athanor

#endif  // ATHANOR_SERVER_HTTP_PAGES_MODEL_ROWS_H_
