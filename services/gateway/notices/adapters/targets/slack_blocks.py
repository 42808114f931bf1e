"""A message in Slack's Block Kit."""

from __future__ import annotations

from collections.abc import Sequence

from slack_sdk.models.blocks import Block, ContextBlock, HeaderBlock, MarkdownTextObject, SectionBlock

from tenuto.services.gateway.notices.adapters.messages import Message, NoticeInWords

HEADER_CHARACTERS_MAX = 150
SECTION_CHARACTERS_MAX = 3_000
TEXT_CHARACTERS_MAX = 3_000
NOTICES_SHOWN_MAX = 20
"""Most notices that are shown in one message, which has at most 50 blocks."""
SIGNS = {"info": ":information_source:", "warning": ":warning:", "error": ":rotating_light:"}


def blocks(message: Message, *, details: bool = True) -> list[Block]:
    """Blocks of the message. `details`: with errors and the last lines of logs."""
    found: list[Block] = [HeaderBlock(text=_cut(message.title, HEADER_CHARACTERS_MAX))]
    for item in message.notices[:NOTICES_SHOWN_MAX]:
        found += _notice(item, details)
    left = len(message.notices) - NOTICES_SHOWN_MAX
    if left > 0:
        found.append(ContextBlock(elements=[MarkdownTextObject(text=f"and {left} more notices")]))
    return found


def text(message: Message) -> str:
    """Text for phones, and for programs that show no blocks."""
    return _cut(escaped(message.title), TEXT_CHARACTERS_MAX)


def _notice(item: NoticeInWords, details: bool) -> Sequence[Block]:
    sign = ":white_check_mark:" if item.recovered else SIGNS[item.severity]
    lines = [f"{sign} *{escaped(item.why)}*"]
    if details and item.error:
        lines.append(_code(item.error))
    if details and item.log_lines:
        lines.append(_code("\n".join(item.log_lines)))
    about = [f"<{item.link}|{escaped(item.subject)}>"]
    about += [escaped(part) for part in (item.experiment_name, item.user, item.event_type) if part]
    return [
        SectionBlock(text=MarkdownTextObject(text=_section(lines))),
        ContextBlock(elements=[MarkdownTextObject(text=" · ".join(about))]),
    ]


def _section(lines: Sequence[str]) -> str:
    """Text of as many parts as fit: a part cut in the middle of its code block would swallow the rest."""
    shown = _cut(lines[0], SECTION_CHARACTERS_MAX)
    for line in lines[1:]:
        if len(shown) + 1 + len(line) <= SECTION_CHARACTERS_MAX:
            shown += f"\n{line}"
    return shown


def _code(what: str) -> str:
    shown = escaped(what.replace("```", "'''"))
    return f"```{shown[-1_400:]}```"


def escaped(what: str) -> str:
    """Text in which the three characters are escaped that have a meaning in Slack."""
    return what.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def _cut(what: str, most: int) -> str:
    return what if len(what) <= most else f"{what[: most - 1]}…"
