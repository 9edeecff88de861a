input { int cpu; int memory; long kind; unsigned long seq; };
output { double load; char name[8]; };
shared { short limit; };
{ static long calls = 3; const K = 0x10; double d = 1.5e3; int a[4][2];
  if (input.cpu > 80 && input.memory < 1000 || !input.kind) { a[1][calls & 1] += 'x'; return 0; }
  else if (input.seq % 10 == 0) return (int)d ? 1 : ~2;
  do { if (calls++ > K) break; else continue; } while (shared.limit <<= 1, now() != 0);
  for (long i = 0, j = 9; i < j; ++i, j--) output.name[i % 8] ^= min(i, max(j, abs(-3)));
  output.load = -d / calls; // comment
  /* another */ return sizeof(long) + (unsigned short)input.cpu; }
