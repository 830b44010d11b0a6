"""How many gateways a fleet has, and where they may listen."""

import pytest

from soulsgraph_clusters.fleet.certificates import make_certificates
from soulsgraph_clusters.fleet.security import read_identity
from soulsgraph_clusters.fleet.settings import Fleet, FleetError, FleetSettings, load_fleet

RELAYS = ("127.0.0.1:7444", "127.0.0.1:7445")


def test_further_gateways_take_the_addresses_in_their_order(tmp_path):
    settings = FleetSettings(relays=RELAYS)
    assert [Fleet(settings, tmp_path, count).relays for count in (1, 2, 3)] == [(), RELAYS[:1], RELAYS]
    assert Fleet(settings, tmp_path).gateways == 1


@pytest.mark.parametrize("count", [0, -1, 4])
def test_gateways_without_an_address_are_refused(tmp_path, count):
    file = tmp_path / "fleet.toml"
    file.write_text(f"relays = {[*RELAYS]}\n")
    assert load_fleet(file, 3).relays == RELAYS
    with pytest.raises(FleetError, match=f"gateways: expected 1 to 3, .* found {count}; add the address"):
        load_fleet(file, count)


@pytest.mark.parametrize(
    ("relays", "expected"),
    [
        (("10.0.0.3:7443",), "expected a certificate and its key to listen on 10.0.0.3"),
        (("127.0.0.1",), "expected `relays` as HOST:PORT, found '127.0.0.1'"),
        (("127.0.0.1:7443",), "expected each address of `listen` and `relays` once"),
        ((*RELAYS, RELAYS[0]), "expected each address of `listen` and `relays` once"),
    ],
)
def test_an_address_that_no_gateway_can_have_is_refused(relays, expected):
    with pytest.raises(FleetError, match=expected):
        FleetSettings(relays=relays)


def test_a_certificate_that_does_not_hold_for_a_gateway_is_refused_before_it_starts(tmp_path):
    make_certificates(tmp_path, ["10.0.0.1", "head.lan"])
    settings = FleetSettings("10.0.0.1:7443", ("10.0.0.3:7443",), certificate="head.pem", key="head.key")
    assert read_identity(settings, tmp_path) is not None
    assert read_identity(settings, tmp_path, ["head.lan:7443", "127.0.0.1:7443", "[::1]:7443"]) is not None
    with pytest.raises(FleetError, match=r"holds for 10\.0\.0\.3, where a gateway listens, found one of head\.lan, "):
        read_identity(settings, tmp_path, settings.relays)
