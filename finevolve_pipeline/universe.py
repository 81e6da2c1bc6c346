"""The 31 Shenwan level-1 industry indices (2021 scheme) and the market benchmark CSI1000."""

from __future__ import annotations

import re
import unicodedata
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

# Further names by code: names of the 2011 and 2014 editions that became one industry of today's under another name,
# all level-2 industries of the 2021 edition, and what people call them. Blanks separate names; each means one industry.
_ALIASES = {
    "801010": "农业 林业 渔业 种植业 饲料 农产品加工 养殖业 动物保健 农业综合 畜牧业 生猪养殖 种业 农林牧渔业",
    "801030": "化工 化学原料 化学制品 化学纤维 塑料 橡胶 农化制品 非金属材料 化肥 农药 化纤",
    "801040": "黑色金属 冶钢原料 普钢 特钢",
    "801050": "有色 金属新材料 工业金属 贵金属 小金属 能源金属 稀土",
    "801080": "半导体 芯片 集成电路 元件 光学光电子 消费电子 电子化学品 其他电子 电子元器件 面板",
    "801110": "家电 白色家电 黑色家电 小家电 厨卫电器 照明设备 家电零部件 其他家电 白电",
    "801120": "食品 饮料 白酒 食品加工 非白酒 饮料乳品 休闲食品 调味发酵品 乳业 啤酒 酒类",
    "801130": "纺织服装 纺织 服装 纺织制造 服装家纺 饰品 纺服",
    "801140": "轻工 造纸 包装印刷 家居用品 文娱用品 家居",
    "801150": "医药 生物医药 医疗 化学制药 中药 生物制品 医药商业 医疗器械 医疗服务 创新药 疫苗",
    "801160": "公用 电力 燃气 水务",
    "801170": "交运 交通 物流 铁路公路 航空机场 航运港口 航运 港口 机场 快递 航空运输 海运",
    "801180": "地产 房地产开发 房地产服务 物业",
    "801200": "商业贸易 商贸 零售 贸易 一般零售 专业连锁 互联网电商 旅游零售 电商",
    "801210": "休闲服务 餐饮旅游 社服 旅游 体育 本地生活服务 专业服务 酒店餐饮 旅游及景区 教育 酒店 餐饮",
    "801230": "综合类",
    "801710": "建材 水泥 玻璃玻纤 装修建材",
    "801720": "建筑 房屋建设 装修装饰 基础建设 专业工程 工程咨询服务 基建",
    "801730": "电气设备 电新 电力设备及新能源 电力设备新能源 电机 其他电源设备 光伏设备 风电设备 电池 "
    "电网设备 光伏 风电 锂电池 储能",
    "801740": "军工 国防 航天装备 航空装备 地面兵装 航海装备 军工电子 国防与军工",
    "801750": "计算机设备 it服务 软件开发 软件 计算机应用",
    "801760": "文化传媒 游戏 广告营销 影视院线 数字媒体 社交 出版 电视广播 影视",
    "801770": "通信服务 通信设备 电信 运营商 电信运营商",
    "801780": "银行业 国有大型银行 股份制银行 城商行 农商行 其他银行",
    "801790": "非银 非银行金融 证券 保险 券商 多元金融",
    "801880": "汽车服务 汽车零部件 摩托车及其他 乘用车 商用车 汽车整车 新能源汽车 新能源车",
    "801890": "机械 通用设备 专用设备 轨交设备 工程机械 自动化设备 机械制造",
    "801950": "煤炭开采 焦炭 焦煤",
    "801960": "石油 石化 石油化工 油气开采 油服工程 炼化及贸易 油气 石油天然气",
    "801970": "环境保护 环境治理 环保设备 环保工程及服务",
    "801980": "美护 化妆品 个护用品 医疗美容 医美",
}
_ALIASES_EN = {
    "801010": ("agriculture forestry animal husbandry and fishery", "agriculture forestry and fishing", "farming"),
    "801030": ("chemicals", "chemical industry", "chemical"),
    "801040": ("iron and steel", "ferrous metals"),
    "801050": ("non-ferrous", "nonferrous metal"),
    "801080": ("electronic", "semiconductors", "semiconductor", "consumer electronics"),
    "801110": ("home appliances", "household appliance", "home appliance"),
    "801120": ("food and beverages", "food", "beverages"),
    "801130": ("textiles and garments", "textile and apparel", "textile and garment", "textiles", "apparel"),
    "801140": ("light industry manufacturing", "light industry"),
    "801150": ("pharmaceuticals", "pharmaceutical and biological", "medicine and biology", "healthcare", "biotech"),
    "801160": ("utility", "public utilities"),
    "801170": ("transport", "logistics", "shipping"),
    "801180": ("property", "realty"),
    "801200": ("retail", "commerce and retail", "commerce and trade", "trade and retail", "e-commerce"),
    "801210": ("social service", "leisure services", "consumer services"),
    "801230": ("comprehensive", "conglomerate"),
    "801710": ("construction materials", "building material"),
    "801720": ("construction", "building decoration", "architectural decoration"),
    "801730": ("electrical equipment", "power equipment and new energy", "electric power equipment"),
    "801740": ("defense", "defence", "national defense", "military", "defense industry", "aerospace and defense"),
    "801750": ("computer", "software"),
    "801760": ("media and entertainment",),
    "801770": ("telecom", "telecoms", "communications", "communication", "telecommunication"),
    "801780": ("bank", "banking"),
    "801790": (
        "non-banking financials",
        "non-bank finance",
        "nonbank financial",
        "insurance",
        "securities",
        "brokerage",
    ),
    "801880": ("auto", "autos", "automobile", "automotive"),
    "801890": ("machinery and equipment", "machinery equipment", "mechanical equipment"),
    "801950": ("coal mining",),
    "801960": ("petroleum and petrochemical", "oil and petrochemicals", "petrochemicals", "oil and gas", "petroleum"),
    "801970": ("environment protection", "environmental"),
    "801980": ("beauty care", "beauty", "personal care", "cosmetics"),
}
_CODE = re.compile(r"(?<!\d)8\d{5}(?!\d)(?:\.si\b)?")
_LONGEST_NAME = 100
_NO_LETTER = re.compile(r"[\W_]+")
_DECORATION = re.compile(
    r"^(?:申万(?:宏源)?(?:一级|二级)?(?:行业)?|shenwan|sw)|(?:(?:一级|二级)?行业|板块|产业|指数|业|sectors?|industry|index)$"
    r"|(?<=[^a-z])iii?$"
)


def _plain(name: str) -> str:
    """A name without case, width, blanks and punctuation."""
    return _NO_LETTER.sub("", unicodedata.normalize("NFKC", name).lower().replace("&", " and "))


def _named() -> dict[str, Industry]:
    by_code = {one.code: one for one in INDUSTRIES}
    further = ((code, alias) for code, listed in _ALIASES.items() for alias in listed.split())
    english = ((code, alias) for code, listed in _ALIASES_EN.items() for alias in listed)
    named = {_plain(alias): by_code[code] for code, alias in (*further, *english)}
    for one in INDUSTRIES:
        named |= {_plain(name): one for name in (one.name_zh, one.name_en, one.name_zh + one.name_en)}
    return named


_NAMED = _named()


def industry_named(text: str) -> Industry | None:
    """The industry that a model means by a code, a name, or one of the known further names; None if it is none.

    Decorations that models add are read over: `申万`, `行业`, `(801170)`, `.SI`. Nothing is guessed: a name that means
    several industries (`采掘`, `新能源`, `金融`), two codes, or a code beside another industry's name mean none.
    """
    if len(text) > _LONGEST_NAME:
        return None
    plain = unicodedata.normalize("NFKC", text).lower()
    codes = {code.removesuffix(".si") for code in _CODE.findall(plain)}
    name = _name_of(_plain(_CODE.sub(" ", plain)))
    if not codes:
        return name
    coded = _LOOKUP.get(codes.pop()) if len(codes) == 1 else None
    return coded if name is None or name == coded else None


def _name_of(plain: str) -> Industry | None:
    found = _NAMED.get(plain)
    while found is None and (shorter := _DECORATION.sub("", plain, count=1)) != plain:
        plain = shorter
        found = _NAMED.get(plain)
    return found


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
