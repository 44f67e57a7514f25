#ifndef MIRT__MEMORY_H
#define MIRT__MEMORY_H
/* The devices' working memory: one block each, shared by everything a strategy runs, one thing at a time. */
#include "strategy.h"

/* Makes room for `needs`, keeping nothing of what is there; the block never shrinks. */
MIRT__LIB mirt_status mirt__memory_reserve(mirt_strategy *strategy, const mirt__layout *needs);
/* When a function found too little memory: functions that are recorded from here on store nothing that readers can
   compute. False: so it was before, or the memory was not it. */
MIRT__LIB bool mirt__memory_save(mirt_strategy *strategy);
/* Bytes of a block for `layout`; false on overflow. */
MIRT__LIB bool mirt__layout_bytes(const mirt__layout *layout, size_t *bytes);
MIRT__LIB void mirt__memory_free(mirt_strategy *strategy);

#endif
