"""`mtpc train mtpc` and `mtpc convert mtpc`."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Literal

import typer

from mtpc.errors import MTPCError
from mtpc.lab.cli import method_options as options
from mtpc.lab.options.names import NameList, file_name
from mtpc.lab.options.numbers import MOST_DRAFTS, MOST_PROMPTS, Bounds, NumberList
from mtpc.lab.options.paths import config_folder, folder_to_write, model_folders
from mtpc.lab.options.settings import option_names, refuse_options, with_settings
from mtpc.lab.training.settings import CircuitSettings, ConversationCircuitSettings

MARKOV = "markov"
ON_CORPUS = {"corpus", "prompts"} | option_names(CircuitSettings) - option_names(ConversationCircuitSettings)
ON_CONVERSATIONS = {"start", "states", "questions"} | (
    option_names(ConversationCircuitSettings) - option_names(CircuitSettings)
)


@with_settings
def train(
    invocation: typer.Context,
    target: options.AnyTarget,
    corpus: Annotated[
        Path, typer.Option(help="Corpus folder that `mtpc corpus` wrote, for a byte-level target; not with --data.")
    ] = Path("corpus"),
    data: Annotated[
        Path | None,
        typer.Option(help="Folder of conversations that `mtpc distill` wrote with the target, for subword tokens."),
    ] = None,
    out: Annotated[
        Path,
        typer.Option(
            callback=folder_to_write,
            help="Folder for the checkpoints, as OUT/PREFIX-CIRCUIT-nWINDOW. -rRANK follows where several ranks are "
            "given, and -loraLAYERS where there are LoRA layers.",
        ),
    ] = Path("runs"),
    prefix: Annotated[
        str, typer.Option(callback=file_name, help="First part of the names of the checkpoints.")
    ] = "mtpc",
    circuits: Annotated[
        Sequence[str],
        typer.Option(
            metavar="ff,cp,hmm,btree,markov",
            parser=NameList(("ff", "cp", "hmm", "btree", MARKOV)),
            help="Circuits to train, one drafter each: ff independent, cp mixture, hmm chain, btree binary tree; or "
            "markov (with --data), independent with a bias by the previous token.",
        ),
    ] = ("btree",),
    windows: Annotated[
        Sequence[int],
        typer.Option(
            metavar="8,16,...",
            parser=NumberList(Bounds(2, MOST_DRAFTS)),
            help="Windows n to train, one drafter each; a drafter drafts n - 1 tokens.",
        ),
    ] = (8,),
    rank: Annotated[
        Sequence[int],
        typer.Option(
            metavar="8,16,...",
            parser=NumberList(Bounds(1, 4096)),
            help="Mixture components per position, one drafter for each number; ff and markov always have 1.",
        ),
    ] = (16,),
    markov_rank: Annotated[int, typer.Option(min=1, max=4096, help="Rank of the bias of markov.")] = 256,
    leaves: Annotated[
        Literal["shared", "table", "target"] | None,
        typer.Option(
            help="Unembedding of the components: 'shared' by all, a 'table' for each as in MTPC, or the output head "
            "of the 'target' [default: target with --data, otherwise shared]."
        ),
    ] = None,
    *,
    sizes: options.HeadSizes,
    token_input: Annotated[
        bool | None,
        typer.Option(
            help="Feed the target's own token to the residual layer; the circuit starts after it [default: with "
            "--data]."
        ),
    ] = None,
    start: Annotated[
        list[Path] | None,
        typer.Option(
            callback=lambda paths: model_folders(paths or []),
            help="With --data, start from the weights of this checkpoint of the same configuration, or of the same "
            "without LoRA layers. Repeat it for several drafters.",
        ),
    ] = None,
    lora_layers: Annotated[
        Sequence[int],
        typer.Option(
            metavar="0,1,...",
            parser=NumberList(Bounds(0, 64)),
            help="Train LoRA adapters on this number of the target's last layers (1, 2 or 4 in MTPC; 0: none). The "
            "circuit reads their output. Several numbers train one drafter each.",
        ),
    ] = (0,),
    lora_rank: Annotated[int, typer.Option(min=1, max=4096, help="Rank of the LoRA adapters.")] = 16,
    settings: CircuitSettings,
    on_conversations: ConversationCircuitSettings,
    states: options.States = None,
    prompts: Annotated[
        int,
        typer.Option(
            min=0,
            max=MOST_PROMPTS,
            help="Held-out prompts of --corpus per category to evaluate on; 0 skips the evaluation.",
        ),
    ] = 64,
    questions: options.Questions = 16,
    resume: options.Resume = None,
    minutes: options.Minutes = None,
) -> None:
    r"""Train circuits that draft a window of tokens in one pass (MTPC, arXiv 2511.11346).

    Several circuits, windows, ranks and numbers of LoRA layers train on the same batches, so that they share the
    target's passes and can be compared. The provenance.json of each checkpoint holds the expected acceptance rates on
    held-out text that `mtpc evaluate` prints.

    A byte-level target is trained for on a corpus, with --updates, --texts and --positions. A chat model with subword
    tokens is trained for on its conversations (--data), with --epochs, --batch and the options after them. Its circuits
    use the target's output head and read the target's embedding of the token before the draft.

    Examples:
    ```
    mtpc train mtpc --target weights/byte-target --circuits btree --windows 8

    # Train four drafters, and compare them.
    mtpc train mtpc --target runs/byte-target --circuits cp,hmm --windows 8,16

    # Compare a circuit without and with LoRA on the target's last layer.
    mtpc train mtpc --target weights/byte-target --lora-layers 0,1

    # Train for a chat model.
    mtpc train mtpc --target runs/smollm2 --data runs/distilled \
        --circuits ff,hmm
    ```
    """
    from mtpc.autoregressive.lora import lora_of
    from mtpc.files.config_model import validated
    from mtpc.lab.cli.train_and_score import check_outputs, load_frozen_target, prepare_training, train_and_score
    from mtpc.lab.evaluation.prompts import Prompts, corpus_prompts
    from mtpc.lab.text.corpus import Corpus
    from mtpc.lab.training.recipe import DrafterRecipe
    from mtpc.lab.training.recipes.conversation_circuit_recipe import ConversationCircuitRecipe
    from mtpc.lab.training.recipes.mtpc_recipe import CircuitRecipe
    from mtpc.methods.drafter import load_drafter
    from mtpc.methods.mtpc import MTPCConfig

    given = None
    refuse_options(invocation, *((ON_CONVERSATIONS, "without --data") if data is None else (ON_CORPUS, "with --data")))
    drafters = named_drafters(prefix, circuits, windows, rank, lora_layers)
    check_outputs((out / name for name in drafters), resume)
    if data is None:
        check_byte_level(target)
        text = Corpus(corpus)
        frozen = load_frozen_target(target)
    else:
        given = prepare_training(target, data, states, questions, start or ())
        frozen = given.target
    shared = {
        "hidden_size": frozen.facts.hidden_size,
        "vocab_size": frozen.facts.vocab_size,
        "leaves": leaves or ("shared" if data is None else "target"),
        **dataclasses.asdict(sizes),
        "token_input": data is not None if token_input is None else token_input,
    }
    configs = {}
    for name, (circuit, window, components, layers) in drafters.items():
        kind, bias = ("ff", markov_rank) if circuit == MARKOV else (circuit, 0)
        lora = lora_of(frozen.model.config, layers, lora_rank) if layers else None
        own = {"circuit": kind, "window": window, "rank": components, "markov_rank": bias, "lora": lora}
        where = f"the drafter of --circuits {circuit} and --windows {window}"
        configs[name] = validated(MTPCConfig, own | shared, where)
    recipe: DrafterRecipe
    heldout: Prompts | None
    if given is None:
        recipe, facts = CircuitRecipe(frozen, text, configs, settings), {}
        heldout = corpus_prompts(text, target, prompts) if prompts else None
    else:
        recipe = ConversationCircuitRecipe(
            frozen,
            given.conversations,
            configs,
            dataclasses.replace(on_conversations, drafts=max(windows) - 1),
            starts=[load_drafter(each, frozen.facts) for each in start or ()],
            states=given.states,
        )
        facts, heldout = given.facts, given.prompts
    train_and_score(recipe, lambda name: out / name, facts, heldout, resume, minutes)


def named_drafters(
    prefix: str, circuits: Sequence[str], windows: Sequence[int], ranks: Sequence[int], lora_layers: Sequence[int]
) -> dict[str, tuple[str, int, int, int]]:
    """Return circuit, window, rank and number of LoRA layers of each drafter to train, by the name of its folder."""
    from mtpc.circuits import allowed_rank

    drafters = {}
    for circuit, window, rank, layers in itertools.product(circuits, windows, ranks, lora_layers):
        kind = "ff" if circuit == MARKOV else circuit
        rank = allowed_rank(kind, rank)
        name = f"{prefix}-{circuit}-n{window}"
        name += f"-r{rank}" if len(ranks) > 1 and kind != "ff" else ""
        name += f"-lora{layers}" if layers else ""
        drafters[name] = (circuit, window, rank, layers)
    return drafters


def check_byte_level(target: Path) -> None:
    """Check that a training without --data has a target whose tokens are bytes; a folder without a tokenizer passes.

    Raises:
        MTPCError: The target has subword tokens, or as `mtpc.lab.targets.folder.check_folder`.
    """
    from mtpc.lab.targets.folder import check_folder
    from mtpc.lab.text.corpus import may_have_bytes

    check_folder(target)
    if not may_have_bytes(target):
        raise MTPCError(
            f"{target} does not have bytes as tokens: pass --data, a folder of conversations that "
            f"`mtpc distill --target {target}` writes."
        )


def convert(
    source: options.Published,
    folder: options.Converted,
    target: Annotated[
        Path | None,
        typer.Option(
            callback=config_folder,
            help="Target of a circuit with LoRA adapters, whose configuration is read: a folder or a Hugging Face id.",
        ),
    ] = None,
) -> None:
    """Convert a circuit that the authors of MTPC published (agrv/llama-*, agrv/evabyte-*).

    Reads config.yaml and the last model@STEP.pt, without executing code. The converted circuit is the same distribution
    of the same window: FF, CP, HMM or BTree with a table of leaves. LoRA adapters of the target's last layers become
    files of peft. A checkpoint with layers in front of the circuit, with several trees, or with unknown entries is
    rejected.

    Circuits for benjamin/Llama3-2-3B-IT-Byte can be served by both engines. Neither engine runs EvaByte.

    Examples:
    ```
    mtpc convert mtpc agrv/llama-lr-3e-4-no-lora-cp-n-8-r-8 runs/byte-cp

    # With LoRA layers.
    mtpc convert mtpc downloads/lora runs/lora --target downloads/llama
    ```
    """
    from mtpc.lab.cli.recipes.circuit_line import circuit_line
    from mtpc.lab.convert.mtpc import convert_mtpc

    typer.echo(circuit_line(folder, convert_mtpc(source, folder, target)))
