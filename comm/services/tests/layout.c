/* Prints where each member of the header's structures lies. */
#include "../include/selvedge_readiness.h"

#include <stdio.h>

#define AT(member) printf(#member " %zu\n", offsetof(struct selvedge_readiness, member))

int main(void)
{
	AT(interest.flag);
	AT(interest.fd_list);
	AT(interest.updated_fd_list);
	AT(ready.flag);
	AT(ready.sleeping);
	AT(ready.signalled);
	AT(ready.summary);
	AT(ready.fd_active);
	AT(generation);
	printf("size %zu\n", sizeof(struct selvedge_readiness));
	return 0;
}
