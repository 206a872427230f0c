/* A program whose first thread ends, and which goes on in another one. For leftover.py. */
#include <pthread.h>
#include <unistd.h>

static void *go_on(void *arg)
{
	for (;;)
		pause();
	return arg;
}

int main(void)
{
	pthread_t t;

	if (pthread_create(&t, NULL, go_on, NULL) != 0)
		return 9;
	pthread_exit(NULL);
}
