// An object that calls a library.
float erff(float);
float Erf(float x) { return erff(x); }
