#include "all.h"
int digits(int n) { return n < 10 ? 1 : 1 + digits(n / 10); }
