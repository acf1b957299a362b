"""The rewarded answers of LEAR in a tiny world whose answer does not depend on the rationale."""

import sys

from experiment import Experiment, Variant, main
from lear import lear, variant

EXPERIMENT = Experiment(
    name="lear_detached",
    title="LEAR: a base model that answers without its rationale",
    form="lear",
    variants=(
        Variant("base", None),
        variant("f", lear("f")),
        variant("r + e + f", lear()),
    ),
    columns=("format", "answer", "o_r", "o_e", "o_f"),
    panels=("answer", "o_r", "o_e"),
    base="detached",
    fresh=400,
    notes="""
`o_r`, `o_e` and `o_f` are the F1 of three answers on answerable questions: from the rationale
with the documents, from the extract alone, and from both. `answer` is the share of responses with
the correct answer. "f" and "r + e + f" are the rewarded answers.

The base of this experiment differs from that of [the other ablations of LEAR](lear.md). In its
pre-training (`python -m tiny_search.pretrain --kind detached`), rationale, extract and
answer are drawn independently of each other, and half of the rationales repeat a random document.
The base therefore answers from the documents and not from its rationale. With a rationale and no
extract, it answers what the rationale states.

- With the full answer (f) alone, the answer from the rationale (`o_r`) is 0.09 lower than with
  all three answers if the responses are sampled: 0.13, 0.05 and 0.09 lower on the three seeds.
  The criterion for this comparison was a difference of at least 0.08. With the usual base, whose
  answers copy the rationale, the difference is only 0.05.
- With greedy decoding, there is no difference (0.93 and 0.93). The most probable rationale of
  this base is correct before the training, and its errors appear only in samples.
- Even with f alone, the rationale becomes much better than that of the base (0.82 instead of
  0.52). No reward depends on it. A possible reason is that the training of the answer improves
  the search for the document, which all sections use.
- The spread over the seeds (0.06 to 0.08) is nearly as large as the difference of the means. The
  direction is the same on each seed.
""",
)

if __name__ == "__main__":
    sys.exit(main(EXPERIMENT))
