const NUM_RESOURCES = 2;
struct resource { int num_attributes; int attribute[4]; int threshold[4]; };
struct answer { int exceeded[4]; };
input { struct resource resource[NUM_RESOURCES]; };
output { struct answer resource[NUM_RESOURCES]; };
{
    int i;
    int j;
    for (i = 0; i < NUM_RESOURCES; i++) {
        for (j = 0; j < input.resource[i].num_attributes; j++) {
            if (input.resource[i].attribute[j] > input.resource[i].threshold[j])
                output.resource[i].exceeded[j] = 1;
            else
                output.resource[i].exceeded[j] = 0;
        }
    }
}
