#include "all.h"
static int items[16], top;
int push(int value) { return items[top++] = value; }
int pop(void) { return items[--top]; }
