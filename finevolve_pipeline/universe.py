"""The 31 Shenwan level-1 industry indices (2021 scheme) and the market benchmark CSI1000."""

from __future__ import annotations

from typing import NamedTuple

from finevolve_pipeline.errors import UniverseError


class Industry(NamedTuple):
    """One Shenwan level-1 industry index. `code` has six digits; people write it with `.SI` behind."""

    code: str
    name_zh: str
    name_en: str


INDUSTRIES: tuple[Industry, ...] = (
    Industry("801010", "农林牧渔", "Agriculture"),
    Industry("801030", "基础化工", "Basic Chemicals"),
    Industry("801040", "钢铁", "Steel"),
    Industry("801050", "有色金属", "Non-ferrous Metals"),
    Industry("801080", "电子", "Electronics"),
    Industry("801110", "家用电器", "Household Appliances"),
    Industry("801120", "食品饮料", "Food & Beverage"),
    Industry("801130", "纺织服饰", "Textiles & Apparel"),
    Industry("801140", "轻工制造", "Light Manufacturing"),
    Industry("801150", "医药生物", "Pharmaceuticals & Biotech"),
    Industry("801160", "公用事业", "Utilities"),
    Industry("801170", "交通运输", "Transportation"),
    Industry("801180", "房地产", "Real Estate"),
    Industry("801200", "商贸零售", "Retail & Trade"),
    Industry("801210", "社会服务", "Social Services"),
    Industry("801230", "综合", "Conglomerates"),
    Industry("801710", "建筑材料", "Building Materials"),
    Industry("801720", "建筑装饰", "Construction & Decoration"),
    Industry("801730", "电力设备", "Power Equipment"),
    Industry("801740", "国防军工", "Defense & Military"),
    Industry("801750", "计算机", "Computers"),
    Industry("801760", "传媒", "Media"),
    Industry("801770", "通信", "Telecommunications"),
    Industry("801780", "银行", "Banks"),
    Industry("801790", "非银金融", "Non-bank Financials"),
    Industry("801880", "汽车", "Automobiles"),
    Industry("801890", "机械设备", "Machinery"),
    Industry("801950", "煤炭", "Coal"),
    Industry("801960", "石油石化", "Petroleum & Petrochemicals"),
    Industry("801970", "环保", "Environmental Protection"),
    Industry("801980", "美容护理", "Beauty & Personal Care"),
)

CODES: tuple[str, ...] = tuple(industry.code for industry in INDUSTRIES)

BENCHMARK = "000852"
"""CSI1000, the market benchmark of every excess return. Not the Shenzhen stock of the same number."""

_LOOKUP = {key: i for i in INDUSTRIES for key in (i.code, f"{i.code}.SI", i.name_zh, i.name_en.lower())}


def industry(text: str) -> Industry:
    """The industry named by a code (`801170`, `801170.SI`), a Chinese or an English name.

    Raises:
        UniverseError: no such industry (codes of older Shenwan schemes included).
    """
    key = text.strip()
    found = _LOOKUP.get(key) or _LOOKUP.get(key.upper()) or _LOOKUP.get(key.lower())
    if found is None:
        raise UniverseError(
            f"sector {text!r}: not one of the 31 Shenwan level-1 industries; `finevolve doctor --sectors` lists them"
        )
    return found
