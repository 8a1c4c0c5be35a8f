/* A stranger's C99 program: the interface answers with a status and a sentence. */
#include <skald/skald_c.h>
#include <stdio.h>

int main(void) {
  skald_engine* engine = NULL;
  skald_error error;
  const skald_status status = skald_engine_open("no-such-folder", NULL, &engine, &error);
  printf("%s: %s\n", skald_status_name(status), error.message);
  return status == SKALD_ERROR_MODEL_NOT_FOUND && engine == NULL ? 0 : 1;
}
