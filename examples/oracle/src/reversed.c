#include "all.h"
int reversed(int n) {
    int r = 0;
    for (; n; n /= 10)
        r = 10 * r + n % 10;
    return r;
}
