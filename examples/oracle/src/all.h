int gcd(int a, int b);
int is_prime(int n);
int roman(const char *text);
int reversed(int n);
int digits(int n);
int push(int value);
int pop(void);
int first_of(int a, int b, int c);
