#include "all.h"
static int value(char c) {
    return c == 'I' ? 1 : c == 'V' ? 5 : c == 'X' ? 10 : c == 'L' ? 50 : c == 'C' ? 100 : c == 'D' ? 500 : 1000;
}
int roman(const char *text) {
    int sum = 0;
    for (; *text; text++)
        sum += text[1] && value(text[0]) < value(text[1]) ? -value(*text) : value(*text);
    return sum;
}
