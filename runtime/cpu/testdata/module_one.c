// One of two objects that differ only in what they answer.
static int counter = 0;
int Answer(void) { return 1; }
int Count(void) { return ++counter; }
