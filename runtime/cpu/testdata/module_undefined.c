// An object that needs a function no library has.
int AbsentFunction(void);
int Answer(void) { return AbsentFunction(); }
