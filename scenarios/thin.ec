/* Passes one of param.keep pictures to which no other refers, while more waits in the link than it sends in
   param.behind_ms milliseconds, or its receiver loses more than 1 % of the packets. */
shared { long seen; };
{
    long behind = input.backlog * 8000 > input.rate * param.behind_ms;
    if (input.kind != KIND_B || input.referenced) return 0;
    if (!behind && input.loss_ppm < 10000) return 0;
    output.discard = shared.seen++ % param.keep != 0;
}
