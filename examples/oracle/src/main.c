#include <stdio.h>
#include "all.h"
static int wrong;
static void expect(const char *what, int is, int should_be) {
    if (is != should_be)
        wrong = printf("error: %s is %d, not %d\n", what, is, should_be);
}
int main(void) {
    expect("gcd(12, 18)", gcd(12, 18), 6);
    expect("is_prime(91)", is_prime(91), 0);
    expect("roman(XIV)", roman("XIV"), 14);
    expect("reversed(1234)", reversed(1234), 4321);
    expect("digits(12345)", digits(12345), 5);
    expect("first_of(1, 2, 3)", first_of(1, 2, 3), 1);
    return wrong != 0;
}
