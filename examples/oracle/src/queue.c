#include "all.h"
int first_of(int a, int b, int c) {
    push(c), push(b), push(a);
    int first = pop();
    pop(), pop();
    return first;
}
